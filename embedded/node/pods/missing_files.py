"""Finds files that a command expects in its working folder and that do not exist there.

One rule: pure, except for the check whether a file exists, which the caller passes in. A file counts as missing only if
the output of the command names it. Many arguments look like files and are not, or name files that are to be written.
"""

import re
from collections.abc import Callable, Iterator, Sequence

_COMPLAINT = re.compile(r"No such file|can't open|cannot open|not found|does not exist|No module named")
"""The messages of Python, shells and other programs about a missing file."""
_SEPARATORS = re.compile(r"[\s=;&|()<>\"']+")
_ABSOLUTE = ("/", "~", "-", "$", "%")
"""The beginnings of words that are not relative paths: absolute paths, options, variables."""
_QUOTED = re.compile(r"No such file or directory: '([^'/][^']*)'")
"""Python's message about a relative path that a script could not open."""
_MODULE = re.compile(r"(?:^|\s)-m[\s=]+([A-Za-z_]\w*)")
"""An argument that names a module for Python to run; the group is its package."""


def first(command: Sequence[str], output: str, exists: Callable[[str], bool]) -> str:
    """Return the relative path of the first missing file that the output of a command names; empty if there is none.

    `exists` returns whether a relative path exists in the working folder.
    """
    complaints = [line for line in output.splitlines() if _COMPLAINT.search(line)]
    for name in (*_argument_paths(command), *_quoted_paths(complaints)):
        if any(_mentions(line, name) for line in complaints) and not exists(name):
            return name
    return ""


def _argument_paths(command: Sequence[str]) -> Iterator[str]:
    """Yield the parts of a command that may be relative paths, also those inside a shell's script."""
    for part in (part for argument in command for part in _SEPARATORS.split(argument)):
        if part and not part.startswith(_ABSOLUTE) and "://" not in part and ("." in part or "/" in part):
            yield part
    yield from _MODULE.findall(" ".join(command))


def _quoted_paths(complaints: Sequence[str]) -> Iterator[str]:
    for line in complaints:
        yield from _QUOTED.findall(line)


def _mentions(line: str, name: str) -> bool:
    """Return whether a line contains the name of a file, and not as a part of a longer name."""
    return bool(re.search(rf"(?<![\w.-]){re.escape(name.removeprefix('./'))}(?![\w-])", line))
