"""Patterns in the syntax of .gitignore files.

One rule: the last pattern that matches decides, as in git. The time of a match is bounded, whatever the pattern: who
wrote a .torchqignore need not be who runs a job in its folder.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from coordinator.code.errors import FolderRefused

LONGEST_PATTERN = 4096
"""The most characters of a pattern; no path is longer."""
_STAR, _CHARACTER, _NO_SLASH = "[^/]*", "[^/]", "(?!/)"
_FOLDERS, _FIRST_FOLDERS = "(?:/.+)?", "^(?:.+/)?"
"""The regular expressions of `*`, `?`, `/**` and a leading `**/`. Nothing else in a pattern becomes one of these: a
slash in a pattern stands between its parts."""


_BRACKETS = re.compile(r"\\.|\[\^?\]?[^\]]*\]", re.DOTALL)


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
            f"{wrong.source}: {wrong.text[:100]!r} is not a pattern as in a .gitignore file of at most "
            f"{LONGEST_PATTERN} characters: correct or remove it"
        ) from None


def of_text(text: str, source: str) -> list[PatternLine]:
    """Return the pattern lines of a file."""
    return [PatternLine(line, source) for line in text.splitlines()]


def _spec(lines: Sequence[PatternLine]) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines([line.text for line in lines], _Pattern, backend="simple")


class _Pattern(GitIgnoreSpecPattern):
    """A pattern whose regular expression tries each `*` and `**` but the last at one place only."""

    @classmethod
    def pattern_to_regex(cls, pattern: Any) -> Any:
        """Return the regular expression and whether it leaves out; see the base."""
        if len(pattern) > LONGEST_PATTERN:
            raise ValueError
        expression, leaves_out = super().pattern_to_regex(pattern)
        return expression and _bounded(expression), leaves_out


def _bounded(expression: str) -> str:
    """Return an expression that matches the same paths in a time that does not grow with the number of its stars.

    Of the places where the text after a `*` occurs, the first one is as good as any other if another `*` follows. So
    it is never tried again (an atomic group). The same holds for the parts of a path between two `**`.
    """
    within = _BRACKETS.sub(_within_a_part, expression)
    *others, last = map(_bounded_stars, within.split(_FOLDERS))
    for number, parts in enumerate(others):
        if number:
            others[number] = f"(?>(?:/.+?)??{parts}(?=/))"
        elif parts.startswith(_FIRST_FOLDERS):
            others[number] = f"^(?>(?:.+?/)??{parts.removeprefix(_FIRST_FOLDERS)}(?=/))"
    return "(?s)" + "".join(others) + (_FOLDERS if others else "") + last


def _within_a_part(found: re.Match[str]) -> str:
    """Return brackets that match no slash, as in git."""
    is_of_pattern = found[0].startswith("[") and found[0] != _CHARACTER
    return _NO_SLASH + found[0] if is_of_pattern else found[0]


def _bounded_stars(expression: str) -> str:
    """Return the expression of some parts of a path, in which each `*` but the last of its part has one place."""
    first, *others = expression.split(_STAR)
    for number, text in enumerate(others):
        is_last = number == len(others) - 1 or "/" in text.replace(_CHARACTER, "").replace(_NO_SLASH, "")
        others[number] = _STAR + text if is_last else f"(?>{_STAR}?{text})"
    return first + "".join(others)


def _is_pattern(line: PatternLine) -> bool:
    try:
        _spec([line])
    except ValueError:
        return False
    return True
