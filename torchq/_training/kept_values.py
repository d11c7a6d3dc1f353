"""A value that a training gives as its result, as JSON expresses the value.

One rule: nothing raises and nothing is lost. Tuples become lists and keys become text, as in Python's json. NaN and
infinity become text, arrays become lists, and a value that JSON cannot express becomes its repr.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torchq._training.json_values import DEEPEST

LARGEST = 2**63 - 1
"""The largest integer that the programs which read a result keep exactly."""


def as_kept(value: object, name: str) -> tuple[Any, str]:
    """Return a value as JSON, and the place of the first value that is kept as its repr, or an empty text. `name` is
    the name of the value.
    """
    places: list[str] = []
    return _kept(value, name, places, 0), next(iter(places), "")


def represent(value: object) -> str:
    """Return the repr of a value, as valid text; the name of its type if the value has no repr."""
    try:
        return _valid(repr(value))
    except Exception:
        return f"<{type(value).__name__}>"


def _kept(value: Any, name: str, places: list[str], depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _valid(str.__str__(value))
    if isinstance(value, int):
        return int(value) if abs(value) <= LARGEST else represent(int(value))
    if isinstance(value, float):
        return _finite(float(value))
    try:
        if depth <= DEEPEST:
            return _kept_parts(value, name, places, depth + 1)
    except Exception:
        pass  # whatever the value does when it is read, its repr may be there
    places.append(name)
    return represent(value)


def _kept_parts(value: Any, name: str, places: list[str], depth: int) -> Any:
    """Return a list, map or array part by part. Raises TypeError for any other value."""
    if isinstance(value, (list, tuple)):
        return [_kept(each, f"{name}[{place}]", places, depth) for place, each in enumerate(value)]
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for given, each in value.items():
            key = _key(given)
            while key in found:  # as the keys 1 and "1" are
                key = f"{key} ({type(given).__name__})"
            found[key] = _kept(each, f"{name}.{key}", places, depth)
        return found
    if hasattr(value, "tolist"):  # an array or a scalar of NumPy or PyTorch
        return _kept(value.tolist(), name, places, depth)
    raise TypeError


def _finite(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "inf" if number > 0 else "-inf"


def _key(value: Any) -> str:
    if isinstance(value, str):
        return _valid(str.__str__(value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return represent(int(value) if isinstance(value, int) else value)


def _valid(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
