"""Numbers and JSON values, as training code gives them.

One rule: a value is either sent unchanged, or Invalid names the value and a valid one. Scalars of NumPy and of PyTorch
are numbers.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from typing import Any, Union

from torchq._errors import Invalid

LARGEST = 2**53 - 1
"""The largest integer that every reader of JSON keeps exactly."""
DEEPEST = 50
"""The most lists and maps within each other."""
Number = Union[int, float]


def as_text(value: object) -> str:
    """Return a value as compact JSON, in ASCII."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def as_number(value: object, name: str) -> Number:
    """Return a finite number. `name` is the name of the value in messages. Raises Invalid."""
    if isinstance(value, (bool, str, bytes)) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise Invalid(f"{name}: must be a number, not {_words(value)}")
    try:
        number = _converted(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # PyTorch raises RuntimeError for several numbers
        raise Invalid(f"{name}: must be one number, not {_words(value)}") from None
    if isinstance(number, float) and not math.isfinite(number):
        raise Invalid(f"{name}: is {number}, which JSON does not have: leave it out, or stop the training")
    if isinstance(number, int) and abs(number) > LARGEST:
        raise Invalid(f"{name}: must be from -{LARGEST} to {LARGEST}")
    return number


def as_json(value: object, name: str, depth: int = 0) -> Any:
    """Return a value of numbers, text, lists and maps. Raises Invalid for any other, naming its place in `name`."""
    if depth > DEEPEST:
        raise Invalid(f"{name[:200]}: more than {DEEPEST} lists and maps within each other")
    if value is None or isinstance(value, bool):
        return value
    if type(value) is str:
        return _unicode(value, name)
    if type(value) is list:
        return [as_json(each, f"{name}[{place}]", depth + 1) for place, each in enumerate(value)]
    if type(value) is dict:
        return {_key(key, name): as_json(each, f"{name}.{key}", depth + 1) for key, each in value.items()}
    if _is_scalar(value):
        return as_number(value, name)
    raise Invalid(f"{name}: {_words(value)} is not JSON: {_advice(value)}")


def _converted(value: Any) -> Number:
    try:
        return int(operator.index(value))
    except TypeError:
        return float(value)


def _is_scalar(value: object) -> bool:
    """Return whether a value is a number, or an array without dimensions."""
    if type(value) in (int, float):
        return True
    return hasattr(value, "item") and getattr(value, "ndim", 0) == 0


def _unicode(value: str, name: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{name}: the text is not valid Unicode: it has half of a character") from None
    return value


def _key(key: object, name: str) -> str:
    if type(key) is not str:
        raise Invalid(f"{name}: the key {key!r:.60} is {_words(key)}: the keys of a JSON map are text")
    return _unicode(key, name)


def _words(value: object) -> str:
    if isinstance(value, (bool, str)):
        return f"{value!r:.60}"
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _advice(value: object) -> str:
    if isinstance(value, (tuple, set, frozenset)):
        return "give a list"
    if isinstance(value, Mapping):
        return "give a dict"
    if hasattr(value, "tolist"):
        return "give .tolist() of it, or a file"
    if hasattr(value, "__fspath__"):
        return "give str() of it"
    return "give numbers, text, lists and maps"
