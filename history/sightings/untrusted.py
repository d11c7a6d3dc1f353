"""Values from the fields of objects, whoever wrote them.

One rule: no value raises. A field of another type counts as absent, and a text is bounded and can be stored in any
database.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from crds import excerpts, timestamps
from crds.integers import LARGEST
from crds.resources.amounts import Amounts

LONGEST_NAME = 317
LONGEST_MESSAGE = 1024
MOST_AMOUNTS = 65
"""The most resources of a charge, as the schema of TorchJobs has them."""
LONGEST_ANNOTATION = 32_768
_METADATA = ("uid", "namespace", "name", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
MOST = 2**63 - 1
"""The largest amount, as the API server has it."""
NOTHING: Mapping[str, Any] = {}


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else NOTHING


def items(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text(value: object, most: int = LONGEST_NAME) -> str:
    """Return the value if it is a text, as far as it fits; else an empty text.

    PostgreSQL stores neither NUL nor half a surrogate pair.
    """
    if not isinstance(value, str):
        return ""
    storable = value[: most + 1].replace("\x00", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
    return excerpts.excerpt(storable, most)


def number(value: object) -> int:
    """Return the value if it is an integer from 0 to LARGEST, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST else 0


def moment(value: object) -> int | None:
    """Return the seconds since the epoch of a time, without fractions; None if the value is no time."""
    seconds = timestamps.seconds_or_none(value)
    return None if seconds is None else max(0, math.floor(seconds))


def amounts(value: object) -> Amounts:
    """Return the positive amounts by resource, of at most as many resources as a charge may have."""
    found = list(mapping(value).items())[:MOST_AMOUNTS]
    whole = {text(name): min(amount, MOST) for name, amount in found if isinstance(amount, int)}
    return {name: int(amount) for name, amount in whole.items() if amount > 0}


def trim_metadata(manifest: Mapping[str, Any], annotations: Iterable[str]) -> dict[str, Any]:
    """Return the metadata of an object that rows need, with some annotations."""
    metadata = mapping(manifest.get("metadata"))
    found = mapping(metadata.get("annotations"))
    return {name: metadata[name] for name in _METADATA if name in metadata} | {
        "annotations": {name: text(found[name], LONGEST_ANNOTATION) for name in annotations if name in found}
    }
