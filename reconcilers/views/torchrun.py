"""The reports of torchrun and its processes about their end.

One rule: pure, over the termination message (the error file's JSON or the end of the log) or over more of the log.
torchrun exits with 1 whatever ended its processes; the cause is in torchrun's output, and in that of the processes
above it.

Formats: `ChildFailedError` and `SignalException` of torch.distributed.elastic.multiprocessing (api.py, errors), as of
PyTorch 2.13. Nodes keep only the end of a message, so each format may be cut anywhere near its beginning.

Only a template sets TORCHELASTIC_ERROR_FILE. A terminationMessagePath is a mount, and torchrun removes the error file
before it writes it. The removal fails, so nothing is written, and the removal's error is the last line of the log.
Without an error file torchrun ends its log with the root cause, which this module reads. If a script does not use
torch's `record`, the root cause has no traceback; the traceback is further up in the log, printed by the process
itself.

The order of the log is the best evidence of which process failed first. The times in torchrun's table are the times of
its checks, in whole seconds. However, an exception that blames a lost connection, or an interruption, follows from
another exception. Of the remaining exceptions, that of the rank that torchrun names comes first.
"""

import re
import signal
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from crds import excerpts
from reconcilers.views import pod_result, tracebacks
from reconcilers.views.tracebacks import RaisedException

_ROOT = re.compile(r"Root Cause.*", re.DOTALL)
_EXIT_CODE = re.compile(r"\bexit_?code\s*:\s*(-?[0-9]{1,9})(?![0-9])")
_RECEIVED = re.compile(r"\bSignal ([0-9]{1,9}) \(SIG\w+\) received\b")
_SIGNAL_EXCEPTION = re.compile(r"\bSignalException: Process \d+ got signal: ([0-9]{1,9})(?![0-9])")
_DEATH = re.compile(r"\bReceived ([0-9]{1,9}) death signal, shutting down workers")
_ERROR_CODE = re.compile(r'"error_?[cC]ode"\s*:\s*"?(-?[0-9]{1,9})(?![0-9])')

_ERROR_FILE = re.compile(r'^\{"message": ?(?:\{"message": ?)?"((?:[^"\\]|\\.)*)')
_CALLSTACK = re.compile(r'((?:[^"\\]|\\.)*)", ?"timestamp": ?"\d+"\}')
"""The end of an error file whose beginning was cut off: the last line of the traceback has the same text. The search
takes time that grows with the square of the text's length."""
_LONGEST_FILE = 4096
"""The number of characters of an error file that a node keeps."""
_AFTERMATH = "\nDuring handling of the above exception"
"""The line after which torchrun reports its own problem with the error file."""

LOST_PEER = re.compile(
    r"[Cc]onnection (closed by|reset by|was likely closed|refused)|[Bb]roken pipe|Socket closed"
    r"|Dist(Network|Backend|Store)Error|Rendezvous(Connection|Timeout|Closed|Graceful\w*)Error"
    r"|NCCL (error|timeout)|remote process exited|Watchdog caught collective|Timed out (after|waiting)"
)
"""The errors of gloo, NCCL and the stores in a process that ended because another process had ended."""


_ROOT_RANK = re.compile(r"\brank +: (\d{1,9}) \(local_rank: (\d{1,9})\)")
_ROOT_TRACEBACK = re.compile(r"\btraceback : (Traceback \(most recent call last\):.*)", re.DOTALL)
_ALONE = "<NO_OTHER_FAILURES>"
_OWN = re.compile(r"torch\.distributed\.elastic\.multiprocessing\.(errors\.ChildFailedError|api\.SignalException)\b")
"""The exceptions of torchrun itself."""
_OWN_LOG = re.compile(r"[WEI]\d{4} \d\d:\d\d:.* torch/distributed/")
_RENDEZVOUS = re.compile(r"torch\.distributed\.elastic\.rendezvous\.api\.Rendezvous(Closed|Connection|Timeout)Error\b")
"""The exceptions with which torchrun ends because of the rendezvous itself."""
_FRAME = re.compile(r"^(Traceback \(most recent call last\):|\s)")
_INTERRUPTED = re.compile(r"KeyboardInterrupt\b")
_UNINFORMATIVE = ("traceback : To enable traceback", "error_file: <N/A>")
_CPP_FRAME = re.compile(r"(frame )?#\d+[: ]")
_FEWEST_BYTES, _FEWEST_LINES = 2040, 79
"""A message of this length may be the end of a longer log: nodes keep 2048 bytes, or 80 lines."""


@dataclass(frozen=True, slots=True)
class LastOutput:
    """The last output of a container, or of its process that failed first."""

    text: str
    """The output as one line; empty if nothing is known."""
    lost_peer: bool
    """Whether the output blames another process or the connection to it."""
    more: bool = False
    """Whether the real cause may be further back in the log than the text reaches."""


_SILENT = LastOutput("", lost_peer=False)
_ONLY_RESULT = LastOutput("", lost_peer=False, more=True)
"""The last output of a container whose message is the job's result, so that only its log has its output."""


def last_output(message: str) -> LastOutput:
    """Return the last output of a failed container, or of its process that failed first.

    The output is an exception if there is one, else the last line of the message.
    """
    if not message:
        return _SILENT
    if pod_result.is_given(message):
        return _ONLY_RESULT
    recorded = _error_file_message(message)
    if recorded:
        return LastOutput(recorded, blames_peer(recorded))
    root = _root(message)
    exception = _choose(tracebacks.find_exceptions(message), root.group() if root else "", alone=_ALONE in message)
    if exception is None:
        is_killed = root is not None and _is_killed(root.group())
        own_output = _lines_of_rank(message, root.group()) if root is not None and is_killed else message
        return LastOutput(_last_line(message, root), blames_peer(own_output), _is_cut(message) and not is_killed)
    text = exception.text if root is None or _ALONE in message or exception.source != (None, None) else exception.alone
    is_doubtful = root is not None and _follows(exception)
    return LastOutput(text, blames_peer(exception.whole), is_doubtful and _is_cut(message))


def _root(message: str) -> re.Match[str] | None:
    """Return the last reported root cause, to the end of the message: torchrun may have been started twice."""
    at = message.rfind("Root Cause")
    return None if at < 0 else _ROOT.match(message, at)


def _error_file_message(message: str) -> str:
    """Return the text that torch's `record` wrote into an error file, or the part of it that torchrun shows; empty if
    there is no such text.
    """
    output = root_cause_output(message)
    table = _ROOT_TRACEBACK.search(output)
    if table is None:
        return "" if output is message or _ROOT.match(output) else _exception(output)
    return _exception(textwrap.dedent("  " + table[1].partition("\n=====")[0]))


def _exception(text: str) -> str:
    exceptions = tracebacks.find_exceptions(text)
    return exceptions[-1].text if exceptions else excerpts.excerpt(excerpts.one_line(text), tracebacks.LONGEST)


def _choose(exceptions: Sequence[RaisedException], root: str, *, alone: bool) -> RaisedException | None:
    """Return the exception of the process that failed first; None if there is no exception."""
    ends = [index for index, exception in enumerate(exceptions) if _OWN.match(exception.text)]
    if ends:  # torchrun may have been started more than once
        exceptions = exceptions[ends[-2] + 1 if len(ends) > 1 else 0 : ends[-1]]
    if not root:
        return exceptions[-1] if exceptions else None
    last = {exception.source: exception for exception in exceptions}
    rank_match = _ROOT_RANK.search(root)
    ranks = (
        []
        if rank_match is None
        else [(int(rank_match[1]), None), (int(rank_match[1]), int(rank_match[2])), (None, int(rank_match[2]))]
    )
    own_exceptions = [last[source] for source in ranks if source in last]
    if _is_killed(root):  # what other processes printed about it explains nothing
        return next((exception for exception in own_exceptions if not _follows(exception)), None)
    others = sorted(last.values(), key=lambda exception: (exception.source == (None, None), exception.line))
    if not alone:  # any process that does not print its rank may have failed
        others += [exception for exception in reversed(exceptions) if exception.source == (None, None)]
    candidates = [*own_exceptions, *others]
    return next(
        (exception for exception in candidates if not _follows(exception)), candidates[0] if candidates else None
    )


def _is_killed(root: str) -> bool:
    """Return whether a signal ended the process that failed first, other than the signal with which torchrun ends
    processes."""
    return (exit_cause(root) or 0) > 128 and exit_cause(root) != 128 + signal.SIGTERM


def _lines_of_rank(message: str, root: str) -> str:
    """Return the lines that do not certainly belong to another process."""
    rank_match = _ROOT_RANK.search(root)
    own_source = (None, None) if rank_match is None else (int(rank_match[1]), int(rank_match[2]))
    lines = map(tracebacks.parse_source, message.splitlines())
    return "\n".join(
        line for (rank, local), line in lines if rank in (None, own_source[0]) and local in (None, own_source[1])
    )


def _follows(raised: RaisedException) -> bool:
    """Return whether an exception follows from the end of another process."""
    return blames_peer(raised.whole) or bool(_INTERRUPTED.match(raised.text))


def _last_line(message: str, root: re.Match[str] | None) -> str:
    """Return the last informative line, without rulers and torchrun's hints.

    If torchrun reports only the exit code of a process, the line is the last line before torchrun's report.
    """
    before = "" if root is None or (exit_cause(message) or 0) > 128 else _before_torchrun(message)
    output = before or (root.group().partition(_AFTERMATH)[0] if root else message)
    lines = [tracebacks.parse_source(line)[1].strip() for line in output.splitlines()]
    last = next((line for line in reversed(lines) if _is_informative(line)), "")
    # The first line of a message that was cut may have lost its beginning.
    first = len(lines) > 0 and last == lines[0] and _is_cut(message)
    return f"{excerpts.ELLIPSIS} {last.partition(' ')[2]}".rstrip() if first else last


def _before_torchrun(message: str) -> str:
    """Return the output before torchrun's report; empty if that was cut off."""
    lines = message.splitlines()
    first = next((index for index, line in enumerate(lines) if _OWN_LOG.match(line)), 0)
    return "\n".join(line for line in lines[:first] if not _FRAME.match(line))


def _is_informative(line: str) -> bool:
    return bool(line.strip("=-")) and not line.startswith(_UNINFORMATIVE) and not _CPP_FRAME.match(line)


def _is_cut(message: str) -> bool:
    return len(message.encode()) >= _FEWEST_BYTES or message.count("\n") >= _FEWEST_LINES


def exit_cause(message: str) -> int | None:
    """Return the exit code of the process that failed first, in the form of a shell (128 + signal); None if
    no output reports the code.

    If a signal told torchrun itself to stop, that signal is the cause.
    """
    root = _root(message)
    code_match = _EXIT_CODE.search(root.group()) if root else _ERROR_CODE.search(message)
    if code_match is not None:
        code = int(code_match.group(1))
        if root and code == -signal.SIGTERM:  # torchrun ended it because another process had failed
            others = (int(text) for text in _EXIT_CODE.findall(message[: root.start()]))
            code = next((other for other in others if other not in (0, code)), code)
        return shell_code(code)
    signal_match = _SIGNAL_EXCEPTION.search(message) or _RECEIVED.search(message) or _DEATH.search(message)
    return None if signal_match is None else shell_code(-int(signal_match.group(1)))


def root_cause_output(message: str) -> str:
    """Return the output of the process that failed first, if the message is an error file or has torchrun's root cause;
    otherwise the message itself."""
    may_be_file = len(message) <= _LONGEST_FILE and '"timestamp"' in message
    recorded = _ERROR_FILE.match(message) or (_CALLSTACK.search(message) if may_be_file else None)
    if recorded:
        return recorded.group(1).replace("\\n", "\n").replace('\\"', '"')
    root = _root(message)
    return root.group().partition(_AFTERMATH)[0] if root else message


def shell_code(code: int) -> int | None:
    """Convert an exit code of Python's subprocess module, negative for signals, to a shell's; None if it is not
    valid."""
    if -64 <= code < 0:
        return 128 - code
    return code if 0 < code < 256 else None


def signal_name(code: int) -> str:
    """Return the name of the signal that a shell's exit code stands for; empty if the code stands for no signal."""
    try:
        return signal.Signals(code - 128).name if code > 128 else ""
    except ValueError:
        return ""


def rendezvous_error(text: str) -> str:
    """Return which error of the rendezvous ended torchrun, by the text of its last output: Closed, Connection or
    Timeout; empty if none did."""
    found = _RENDEZVOUS.match(text)
    return found[1] if found else ""


def blames_peer(message: str) -> bool:
    """Return whether a last output blames another process or the connection to it."""
    return LOST_PEER.search(message) is not None
