"""The fields of a document, each read as a value of its type.

One rule: whatever is wrong becomes an InvalidRun that begins with the path of the field.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from coordinator.runs.errors import InvalidRun
from crds.resources import quantities, resource_names

LARGEST_WHOLE = 2**31 - 1
_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile("".join(f"(?:([0-9]{{1,9}}){unit})?" for unit in _UNITS))
_RANGE = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?", re.ASCII)


class Fields:
    """The fields of one document. A field that is missing or null has no value."""

    def __init__(self, document: Any, known: Iterable[str], at: str = "") -> None:
        """Take a document. Raises InvalidRun if the value is no map, or has a field of another name than those
        `known`."""
        if not isinstance(document, Mapping):
            raise InvalidRun(f"{at or 'run'}: must be a map")
        self._at = at
        self._values = {name: value for name, value in document.items() if value is not None}
        names = [*known]
        for name in self._values:
            if name not in names:
                raise self.wrong(str(name), f"there is no such field{_nearest(str(name), names)}")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def path(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self._at}.{name}" if self._at else name

    def wrong(self, name: str, message: str) -> InvalidRun:
        """Return the error about a field."""
        return InvalidRun(f"{self.path(name)}: {message}")

    def value(self, name: str) -> Any:
        """Return a value as it is."""
        return self._values.get(name)

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""
        return self._text(name, self._values.get(name, default))

    def whole(self, name: str, default: int, least: int, most: int = LARGEST_WHOLE) -> int:
        """Return a whole number within bounds."""
        value = self._values.get(name, default)
        if type(value) is not int:
            raise self.wrong(name, f"must be a whole number, not {value!r}")
        return self._within(name, value, least, most)

    def _within(self, name: str, value: int, least: int, most: int) -> int:
        if not least <= value <= most:
            bound = f"{least} or more" if value < least else f"{most} or less"
            raise self.wrong(name, f"must be {bound}, not {value}")
        return value

    def range(self, name: str, default: int, least: int, most: int) -> tuple[int, int] | int:
        """Return a whole number within bounds; or two whole numbers, the lower number first, written as 1..3 or as a
        list.
        """
        value = self._values.get(name, default)
        if isinstance(value, str) and (found := _RANGE.fullmatch(value.strip())):
            value = [int(found[1]), int(found[2])] if found[2] else int(found[1])
        if type(value) is int:
            return self._within(name, value, least, most)
        match value:
            case [int(), int()] if bool not in map(type, value):
                low, high = (self._within(name, each, least, most) for each in value)
                if low <= high:
                    return low, high
                raise self.wrong(name, f"begins with more than it ends with: {low}..{high}")
        raise self.wrong(name, f"must be a whole number, or a range as in 1..3, not {value!r}")

    def quantity(self, name: str, resource: str) -> str | None:
        """Return an amount of a resource, given as a number or as a quantity of Kubernetes."""
        value = self._values.get(name)
        if value is None or value == "":
            return None
        try:
            amount = quantities.parse(resource, value)
        except ValueError as error:
            raise self.wrong(name, str(error)) from error
        if amount <= 0:
            raise self.wrong(name, f"must be more than nothing, not {value!r}")
        if unmeant := resource_names.unmeant(resource, value):
            raise self.wrong(name, f"{value!r}: {unmeant}")
        return str(value) if isinstance(value, str) else quantities.format_amount(resource, amount)

    def duration(self, name: str) -> int | None:
        """Return the seconds of a duration, as in 1h30m; None if it is missing."""
        if name not in self:
            return None
        text = self.text(name)
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise self.wrong(name, str(error)) from error
        if not 1 <= seconds <= LARGEST_WHOLE:
            raise self.wrong(name, f"must be a second or more and less than 68 years, not {text!r}")
        return seconds

    def flag(self, name: str) -> bool:
        """Return a truth value, false if it is missing."""
        value = self._values.get(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name, f"must be true or false, not {value!r}")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of several words; the first word is the default."""
        value = self._values.get(name, choices[0])
        if value not in choices:
            raise self.wrong(name, f"must be one of {', '.join(choices)}, not {value!r}")
        return str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self._values.get(name, ())
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise self.wrong(name, "must be a list of texts")
        return tuple(self._text(f"{name}[{index}]", item) for index, item in enumerate(value))

    def map(self, name: str) -> dict[str, str]:
        """Return a map of texts."""
        value = self._values.get(name, {})
        if not isinstance(value, Mapping):
            raise self.wrong(name, "must be a map of texts")
        return {self._text(name, key): self._text(f"{name}.{key}", item) for key, item in value.items()}

    def _text(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.wrong(name, f"must be a text, not {value!r}")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise self.wrong(name, "is not UTF-8") from error
        if "\0" in value:
            raise self.wrong(name, "has a zero byte")
        return value


def parse_duration(text: str) -> int:
    """Return the seconds of a duration as people write it: 90s, 45m, 2h, 1h30m, 7d.

    Raises ValueError for a text that is no duration, such as a number without a unit, whose unit would be a guess.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        raise ValueError(f"must be a duration, as in 90s, 45m, 2h or 1h30m, not {text!r}")
    return sum(int(amount or 0) * seconds for amount, seconds in zip(found.groups(), _UNITS.values(), strict=True))


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
