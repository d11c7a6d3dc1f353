"""The values that a training reports, as JSON expresses them.

One rule: nothing that a training gives raises here. A value that JSON cannot express becomes text ("NaN", "inf") or the
text of its shape ("Tensor of shape (64, 10)"), with a note of its kind.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sized
from typing import Any, NamedTuple

from torchq._training.json_values import LARGEST, as_text
from torchq._training.throttle import LEFT_OUT

MOST_NAMES = 64
RESERVED = ("pod", "time", LEFT_OUT)
"""The names that whoever reads reports finds beside the numbers."""
MOST_PARTS, DEEPEST = 16, 3
"""The most values of a list or map that go one by one, and the most lists and maps within each other."""
LONGEST_TEXT, LONGEST_SENT = 200, 32
"""The most characters of a text that is printed, and of one that is sent."""
LARGEST_PRINTED = 2**63 - 1
WHOLE = ("step", "checkpoint")
_NOT_OF_GAUGES = re.compile(r"[^A-Za-z0-9_]")
_LONGEST_GAUGE = 63


class Reading(NamedTuple):
    """The form in which a value is sent."""

    value: Any
    kind: str = ""
    """Why it is not the value itself, as a predicate of it; empty if it is. The same for all values of a kind."""


def read(given: Mapping[Any, object]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the printed form of the values of a report, and the notes about it: a kind -> a sentence."""
    values: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for key in list(given)[:MOST_NAMES]:
        name = _text(str, key)
        if name in RESERVED:
            notes[name] = f"the name {name} is taken by those who read reports: it goes as {name}_"
            name += "_"
        reading = _read(given[key], 0)
        values[name] = int(reading.value) if name in WHOLE and _is_whole(reading.value) else reading.value
        kind = reading.kind or _misfit(name, reading.value)
        if kind:
            notes.setdefault(kind, f"{name} {kind}")
    if len(given) > MOST_NAMES:
        notes["many"] = f"has {len(given)} names, and the first {MOST_NAMES} go"
    return values, notes


def sendable(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values that a coordinator takes, under names that it takes; None without a step to compute with."""
    if not _is_whole(values.get("step")):
        return None
    sent: dict[str, Any] = {}
    for name, value in values.items():
        is_computed = not _misfit(name, value)
        is_fit = value is not None and (is_computed or name not in WHOLE)
        gauge = _NOT_OF_GAUGES.sub("_", name[:_LONGEST_GAUGE])
        if is_fit and gauge and not gauge[0].isdigit():
            sent.setdefault(gauge, value if is_computed and _is_number(value) else _sent_text(value))
    return sent


def _read(value: Any, depth: int) -> Reading:
    try:
        # Scalars of NumPy and PyTorch, and arrays with one element. An array with several raises here.
        if hasattr(value, "item") and not isinstance(value, Mapping):
            value = value.item()
    except Exception:
        return Reading(_shape(value), "has several values: its shape goes")
    if value is None or isinstance(value, bool):
        return Reading(value)
    if isinstance(value, str):
        return Reading(_text(str.__str__, value))
    if isinstance(value, (list, tuple, Mapping)):
        return _read_parts(value, depth)
    number = _number(value)
    if number is None:
        return _read_other(value)
    if isinstance(number, int):
        if abs(number) <= LARGEST_PRINTED:
            return Reading(number)
        return Reading(_text(str, number), "has more than 64 bits: it goes as text")
    if math.isfinite(number):
        return Reading(number)
    text = "NaN" if math.isnan(number) else "inf" if number > 0 else "-inf"
    return Reading(text, f"is {text}, which JSON does not have: it goes as text")


def _read_parts(value: Any, depth: int) -> Reading:
    """Return a list or map part by part, or its shape if it is large."""
    try:
        if len(value) > MOST_PARTS or depth >= DEEPEST:
            return Reading(_shape(value), "is large: its shape goes")
        if isinstance(value, Mapping):
            parts = {_text(str, key): _read(each, depth + 1) for key, each in value.items()}
            read: Any = {key: part.value for key, part in parts.items()}
            kinds = [part.kind for part in parts.values()]
        else:
            listed = [_read(each, depth + 1) for each in value]
            read, kinds = [part.value for part in listed], [part.kind for part in listed]
    except Exception:
        return Reading(type(value).__name__, "cannot be read: its type goes")
    return Reading(read, next(filter(None, kinds), ""))


def _read_other(value: Any) -> Reading:
    if hasattr(value, "shape") or isinstance(value, Sized):
        return Reading(_shape(value), "has several values: its shape goes")
    return Reading(_text(str, value), f"is a {type(value).__name__}: its text goes")


def _number(value: Any) -> int | float | None:
    for convert in (operator.index, float):
        # Any number of any library, whose conversion may raise anything.
        try:
            number = convert(value)
        except OverflowError:
            return None
        except Exception:
            continue
        return int(number) if isinstance(number, int) else float(number)
    return None


def _shape(value: Any) -> str:
    name = type(value).__name__
    try:
        shape = getattr(value, "shape", None)
        return f"{name} of shape {tuple(shape)}" if shape is not None else f"{name} of {len(value):,}"
    except Exception:
        return name


def _text(convert: Callable[[Any], str], value: Any) -> str:
    """Return a value as valid text, cut where it is long; its type where it has no text."""
    try:
        text = convert(value)
        text = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
        return text.encode(errors="replace").decode()
    except Exception:
        return type(value).__name__


def _misfit(name: str, value: Any) -> str:
    """Return the reason for which no figures are computed from a value, as a predicate; empty if the value fits its
    name.
    """
    if name in WHOLE and not _is_whole(value):
        return f"is no whole number from 0 to {LARGEST}: nothing is computed with it"
    if name == "samples_per_second" and not (_is_number(value) and value >= 0):
        return "is no number from 0 on: nothing is computed with it"
    return ""


def _is_whole(value: Any) -> bool:
    return _is_number(value) and value == int(value) and 0 <= value <= LARGEST


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _sent_text(value: Any) -> str:
    return (value if isinstance(value, str) else as_text(value))[:LONGEST_SENT]
