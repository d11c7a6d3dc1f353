"""Files that a command expects in its working folder, and that are not there.

One rule: pure but for the question whether a file exists, which is passed in. A file counts as missing only if the
output of the command says so: many arguments look like files and are none, or are files to be written.
"""

import re
from collections.abc import Callable, Iterator, Sequence

_COMPLAINT = re.compile(r"No such file|can't open|cannot open|not found|does not exist|No module named")
"""What Python, shells and other programs write about a file that is missing."""
_SEPARATORS = re.compile(r"[\s=;&|()<>\"']+")
_ABSOLUTE = ("/", "~", "-", "$", "%")
"""How words begin that are no relative paths: paths, options, variables."""
_QUOTED = re.compile(r"No such file or directory: '([^'/][^']*)'")
"""Python's words for a relative path that a script wanted to open."""
_MODULE = re.compile(r"(?:^|\s)-m[\s=]+([A-Za-z_]\w*)")
"""The package of a module that Python is to run."""


def first(command: Sequence[str], output: str, exists: Callable[[str], bool]) -> str:
    """The first file, by its relative path, that the output of a command says is missing, and that is; empty if none.

    `exists` says whether a relative path exists in the working folder.
    """
    complaints = [line for line in output.splitlines() if _COMPLAINT.search(line)]
    for name in (*_named(command), *_opened(complaints)):
        if any(_mentions(line, name) for line in complaints) and not exists(name):
            return name
    return ""


def _named(command: Sequence[str]) -> Iterator[str]:
    """The words of a command that may be relative paths, as they are or inside a shell's script."""
    for word in (part for each in command for part in _SEPARATORS.split(each)):
        if word and not word.startswith(_ABSOLUTE) and "://" not in word and ("." in word or "/" in word):
            yield word
    yield from _MODULE.findall(" ".join(command))


def _opened(complaints: Sequence[str]) -> Iterator[str]:
    for line in complaints:
        yield from _QUOTED.findall(line)


def _mentions(line: str, name: str) -> bool:
    """Whether a line names a file: not as a part of a longer name."""
    return bool(re.search(rf"(?<![\w.-]){re.escape(name.removeprefix('./'))}(?![\w-])", line))
