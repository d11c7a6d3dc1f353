"""What torchrun says about its end.

One rule: pure, over the termination message: the error file's JSON, or the end of the log. torchrun exits with 1
whatever its processes died of; what they died of is in its words.

Formats: `ChildFailedError` and `SignalException` of torch.distributed.elastic.multiprocessing (api.py, errors), as of
PyTorch 2.13. Nodes keep the end of either, so that both may be cut at any place of their beginning.

Nobody but a template sets TORCHELASTIC_ERROR_FILE. A terminationMessagePath is a mount, and torchrun removes the error
file before it writes it: that fails, nothing is written, and the error of the removal is the log's last word. Without
it torchrun ends its log with the root cause, which is what is read here.
"""

import re
import signal

_ROOT = re.compile(r"Root Cause.*", re.DOTALL)
_EXIT_CODE = re.compile(r"\bexit_?code\s*:\s*(-?[0-9]{1,9})(?![0-9])")
_RECEIVED = re.compile(r"\bSignal ([0-9]{1,9}) \(SIG\w+\) received\b")
_TOLD = re.compile(r"\bSignalException: Process \d+ got signal: ([0-9]{1,9})(?![0-9])")
_DEATH = re.compile(r"\bReceived ([0-9]{1,9}) death signal, shutting down workers")
_ERROR_CODE = re.compile(r'"error_?[cC]ode"\s*:\s*"?(-?[0-9]{1,9})(?![0-9])')

_SAID = re.compile(r'^\{"message": ?(?:\{"message": ?)?"((?:[^"\\]|\\.)*)')
_CALLSTACK = re.compile(r'((?:[^"\\]|\\.)*)", ?"timestamp": ?"\d+"\}')
"""The end of an error file whose beginning was cut off: the last line of a traceback says the same."""
_AFTERMATH = "\nDuring handling of the above exception"
"""What torchrun says of its own trouble with the error file."""

LOST_PEER = re.compile(
    r"[Cc]onnection (closed by|reset by|was likely closed|refused)|[Bb]roken pipe|Socket closed"
    r"|Dist(Network|Backend|Store)Error|Rendezvous(Connection|Timeout|Closed|Graceful\w*)Error"
    r"|NCCL (error|timeout)|remote process exited|Watchdog caught collective|Timed out (after|waiting)"
)
"""What a process says that came to its end because another one was gone: gloo's, NCCL's and the stores' words."""


def cause(message: str) -> int | None:
    """The exit code of the process that failed first, as a shell gives it (128 + signal); None if nothing says so.

    A torchrun that was itself told to stop by a signal ended by that signal.
    """
    root = _ROOT.search(message)
    found = _EXIT_CODE.search(root.group()) if root else _ERROR_CODE.search(message)
    if found is not None:
        return shell_code(int(found.group(1)))
    told = _TOLD.search(message) or _RECEIVED.search(message) or _DEATH.search(message)
    return None if told is None else shell_code(-int(told.group(1)))


def said(message: str) -> str:
    """What the process said that failed first, if the message is an error file's, or has torchrun's root cause; else
    the message itself."""
    found = _SAID.match(message) or _CALLSTACK.search(message)
    if found:
        return found.group(1).replace("\\n", "\n").replace('\\"', '"')
    root = _ROOT.search(message)
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
