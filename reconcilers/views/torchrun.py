"""What torchrun, and the processes that it starts, say about their end.

One rule: pure, over the termination message: the error file's JSON, or the end of the log; or over more of the log.
torchrun exits with 1 whatever its processes died of; what they died of is in its words, and in theirs above them.

Formats: `ChildFailedError` and `SignalException` of torch.distributed.elastic.multiprocessing (api.py, errors), as of
PyTorch 2.13. Nodes keep the end of either, so that both may be cut at any place of their beginning.

Nobody but a template sets TORCHELASTIC_ERROR_FILE. A terminationMessagePath is a mount, and torchrun removes the error
file before it writes it: that fails, nothing is written, and the error of the removal is the log's last word. Without
it torchrun ends its log with the root cause, which is what is read here. Of a script that does not use torch's
`record` the root cause has no traceback: that is further up in the log, where the process itself printed it.

Nobody knows better than the order of the log which of two processes failed first: the times of torchrun's table are
those at which it looked, in whole seconds. But an exception that blames a lost connection, or an interruption, follows
from another one; of the others that of the rank which torchrun names is believed first.
"""

import re
import signal
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from crds import excerpts
from reconcilers.views import tracebacks
from reconcilers.views.tracebacks import Raised

_ROOT = re.compile(r"Root Cause.*", re.DOTALL)
_EXIT_CODE = re.compile(r"\bexit_?code\s*:\s*(-?[0-9]{1,9})(?![0-9])")
_RECEIVED = re.compile(r"\bSignal ([0-9]{1,9}) \(SIG\w+\) received\b")
_TOLD = re.compile(r"\bSignalException: Process \d+ got signal: ([0-9]{1,9})(?![0-9])")
_DEATH = re.compile(r"\bReceived ([0-9]{1,9}) death signal, shutting down workers")
_ERROR_CODE = re.compile(r'"error_?[cC]ode"\s*:\s*"?(-?[0-9]{1,9})(?![0-9])')

_SAID = re.compile(r'^\{"message": ?(?:\{"message": ?)?"((?:[^"\\]|\\.)*)')
_CALLSTACK = re.compile(r'((?:[^"\\]|\\.)*)", ?"timestamp": ?"\d+"\}')
"""The end of an error file whose beginning was cut off: the last line of a traceback says the same. The time that the
search takes grows with the square of the text."""
_LONGEST_FILE = 4096
"""Characters of an error file that a node keeps."""
_AFTERMATH = "\nDuring handling of the above exception"
"""What torchrun says of its own trouble with the error file."""

LOST_PEER = re.compile(
    r"[Cc]onnection (closed by|reset by|was likely closed|refused)|[Bb]roken pipe|Socket closed"
    r"|Dist(Network|Backend|Store)Error|Rendezvous(Connection|Timeout|Closed|Graceful\w*)Error"
    r"|NCCL (error|timeout)|remote process exited|Watchdog caught collective|Timed out (after|waiting)"
)
"""What a process says that came to its end because another one was gone: gloo's, NCCL's and the stores' words."""


_ROOT_RANK = re.compile(r"\brank +: (\d{1,9}) \(local_rank: (\d{1,9})\)")
_ROOT_TRACEBACK = re.compile(r"\btraceback : (Traceback \(most recent call last\):.*)", re.DOTALL)
_ALONE = "<NO_OTHER_FAILURES>"
_OWN = re.compile(r"torch\.distributed\.elastic\.multiprocessing\.(errors\.ChildFailedError|api\.SignalException)\b")
"""Exceptions of torchrun itself."""
_OWN_LOG = re.compile(r"[WEI]\d{4} \d\d:\d\d:.* torch/distributed/")
_FRAME = re.compile(r"^(Traceback \(most recent call last\):|\s)")
_INTERRUPTED = re.compile(r"KeyboardInterrupt\b")
_SAYS_NOTHING = ("traceback : To enable traceback", "error_file: <N/A>")
_CPP_FRAME = re.compile(r"(frame )?#\d+[: ]")
_FEWEST_BYTES, _FEWEST_LINES = 2040, 79
"""A message that is as long may be the end of a longer log: nodes keep 2048 bytes, or 80 lines."""


@dataclass(frozen=True, slots=True)
class LastWords:
    """What is known of the end of a container, or of its process that failed first."""

    text: str
    """One line; empty if nothing is known."""
    lost_peer: bool
    """Whether it blames another process, or the way to it."""
    more: bool = False
    """Whether what it is to be blamed for may be further back in the log than the text goes."""


_SILENT = LastWords("", lost_peer=False)


def last_words(message: str) -> LastWords:
    """What a failed container said, or the process of it that failed first: its exception if it has left one, else the
    last line of the message."""
    if not message:
        return _SILENT
    recorded = _recorded(message)
    if recorded:
        return LastWords(recorded, lost_peer(recorded))
    root = _root(message)
    chosen = _chosen(tracebacks.raised(message), root.group() if root else "", alone=_ALONE in message)
    if chosen is None:
        killed = root is not None and _is_killed(root.group())
        own = _own_lines(message, root.group()) if root is not None and killed else message
        return LastWords(_last_line(message, root), lost_peer(own), _is_cut(message) and not killed)
    text = chosen.text if root is None or _ALONE in message or chosen.source != (None, None) else chosen.alone
    doubtful = root is not None and _follows(chosen)
    return LastWords(text, lost_peer(chosen.whole), doubtful and _is_cut(message))


def _root(message: str) -> re.Match[str] | None:
    """The last root cause that is reported, to the end of the message: torchrun may have been started twice."""
    at = message.rfind("Root Cause")
    return None if at < 0 else _ROOT.match(message, at)


def _recorded(message: str) -> str:
    """What torch's `record` wrote into an error file, or what torchrun shows of that; empty if there is none."""
    found = said(message)
    table = _ROOT_TRACEBACK.search(found)
    if table is None:
        return "" if found is message or _ROOT.match(found) else _exception(found)
    return _exception(textwrap.dedent("  " + table[1].partition("\n=====")[0]))


def _exception(text: str) -> str:
    found = tracebacks.raised(text)
    return found[-1].text if found else excerpts.excerpt(excerpts.one_line(text), tracebacks.LONGEST)


def _chosen(found: Sequence[Raised], root: str, *, alone: bool) -> Raised | None:
    """The exception of the process that failed first; None if there is none."""
    ends = [index for index, each in enumerate(found) if _OWN.match(each.text)]
    if ends:  # torchrun may have been started more than once
        found = found[ends[-2] + 1 if len(ends) > 1 else 0 : ends[-1]]
    if not root:
        return found[-1] if found else None
    last = {each.source: each for each in found}
    named = _ROOT_RANK.search(root)
    ranks = [] if named is None else [(int(named[1]), None), (int(named[1]), int(named[2])), (None, int(named[2]))]
    own = [last[each] for each in ranks if each in last]
    if _is_killed(root):  # what others said of it explains nothing
        return next((each for each in own if not _follows(each)), None)
    others = sorted(last.values(), key=lambda each: (each.source == (None, None), each.line))
    if not alone:  # processes that do not name themselves may each have failed
        others += [each for each in reversed(found) if each.source == (None, None)]
    candidates = [*own, *others]
    return next((each for each in candidates if not _follows(each)), candidates[0] if candidates else None)


def _is_killed(root: str) -> bool:
    """Whether a signal ended the process that failed first, other than the one with which torchrun ends processes."""
    return (cause(root) or 0) > 128 and cause(root) != 128 + signal.SIGTERM


def _own_lines(message: str, root: str) -> str:
    """The lines that are not surely another process's."""
    named = _ROOT_RANK.search(root)
    own = (None, None) if named is None else (int(named[1]), int(named[2]))
    lines = map(tracebacks.split, message.splitlines())
    return "\n".join(line for (rank, local), line in lines if rank in (None, own[0]) and local in (None, own[1]))


def _follows(raised: Raised) -> bool:
    """Whether an exception follows from the end of another process."""
    return lost_peer(raised.whole) or bool(_INTERRUPTED.match(raised.text))


def _last_line(message: str, root: re.Match[str] | None) -> str:
    """The last line that says something: of the process, if torchrun says no more of it than its exit code; no ruler,
    and none of torchrun's hints."""
    before = "" if root is None or (cause(message) or 0) > 128 else _before_torchrun(message)
    words = before or (root.group().partition(_AFTERMATH)[0] if root else message)
    lines = [tracebacks.split(line)[1].strip() for line in words.splitlines()]
    found = next((each for each in reversed(lines) if _says_something(each)), "")
    # A line with which a message begins that was cut may have lost its beginning.
    first = len(lines) > 0 and found == lines[0] and _is_cut(message)
    return f"{excerpts.ELLIPSIS} {found.partition(' ')[2]}".rstrip() if first else found


def _before_torchrun(message: str) -> str:
    """What was printed before torchrun reported; empty if that was cut off."""
    lines = message.splitlines()
    first = next((index for index, line in enumerate(lines) if _OWN_LOG.match(line)), 0)
    return "\n".join(each for each in lines[:first] if not _FRAME.match(each))


def _says_something(line: str) -> bool:
    return bool(line.strip("=-")) and not line.startswith(_SAYS_NOTHING) and not _CPP_FRAME.match(line)


def _is_cut(message: str) -> bool:
    return len(message.encode()) >= _FEWEST_BYTES or message.count("\n") >= _FEWEST_LINES


def cause(message: str) -> int | None:
    """The exit code of the process that failed first, as a shell gives it (128 + signal); None if nothing says so.

    A torchrun that was itself told to stop by a signal ended by that signal.
    """
    root = _root(message)
    found = _EXIT_CODE.search(root.group()) if root else _ERROR_CODE.search(message)
    if found is not None:
        code = int(found.group(1))
        if root and code == -signal.SIGTERM:  # torchrun ended it because of another one
            others = (int(each) for each in _EXIT_CODE.findall(message[: root.start()]))
            code = next((each for each in others if each not in (0, code)), code)
        return shell_code(code)
    told = _TOLD.search(message) or _RECEIVED.search(message) or _DEATH.search(message)
    return None if told is None else shell_code(-int(told.group(1)))


def said(message: str) -> str:
    """What the process said that failed first, if the message is an error file's, or has torchrun's root cause; else
    the message itself."""
    cut = len(message) <= _LONGEST_FILE and '"timestamp"' in message
    found = _SAID.match(message) or (_CALLSTACK.search(message) if cut else None)
    if found:
        return found.group(1).replace("\\n", "\n").replace('\\"', '"')
    root = _root(message)
    return root.group().partition(_AFTERMATH)[0] if root else message


def shell_code(code: int) -> int | None:
    """An exit code as Python's subprocesses have it, negative for signals, as a shell has it; None if it is none."""
    if -64 <= code < 0:
        return 128 - code
    return code if 0 < code < 256 else None


def name(code: int) -> str:
    """The name of the signal a shell's exit code stands for, empty if it stands for none."""
    try:
        return signal.Signals(code - 128).name if code > 128 else ""
    except ValueError:
        return ""


def lost_peer(message: str) -> bool:
    """Whether somebody's last words blame another process, or the way to it."""
    return LOST_PEER.search(message) is not None
