"""Patterns in the syntax of .gitignore files.

One rule: the last pattern that matches decides, as in git.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from coordinator.code.errors import FolderRefused


class PatternLine(NamedTuple):
    """One line of patterns, and where it was written."""

    text: str
    source: str
    """The file or the option, for messages."""


class Verdict(NamedTuple):
    """The decision of the last pattern that matches a path."""

    ignored: bool
    """False: the pattern begins with `!` and takes the path back."""
    source: str


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """A list of patterns; see `parse`."""

    lines: Sequence[PatternLine]
    spec: GitIgnoreSpec

    def verdict(self, path: str) -> Verdict | None:
        """Return the decision about a path; None if no pattern matches. The path of a folder ends with a slash."""
        if not self.lines:
            return None
        found = self.spec.check_file(path)
        if found.include is None or found.index is None:
            return None
        return Verdict(found.include, self.lines[found.index].source)

    @property
    def takes_back(self) -> bool:
        """Whether a pattern includes files that other rules leave out."""
        return any(line.text.startswith("!") for line in self.lines)


def parse(lines: Iterable[PatternLine]) -> IgnoreRules:
    """Return the rules of pattern lines; a later line comes first. Raises FolderRefused for a line that is no pattern,
    with its source."""
    kept = tuple(line for line in lines if line.text.strip() and not line.text.startswith("#"))
    try:
        return IgnoreRules(kept, _spec(kept))
    except ValueError:
        wrong = next(line for line in kept if not _is_pattern(line))
        raise FolderRefused(
            f"{wrong.source}: {wrong.text!r} is not a pattern as in a .gitignore file: correct or remove it"
        ) from None


def of_text(text: str, source: str) -> list[PatternLine]:
    """Return the pattern lines of a file."""
    return [PatternLine(line, source) for line in text.splitlines()]


def _spec(lines: Sequence[PatternLine]) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines([line.text for line in lines], backend="simple")


def _is_pattern(line: PatternLine) -> bool:
    try:
        _spec([line])
    except ValueError:
        return False
    return True
