"""The links of a job, as to a tracker: the annotation `train.distributed.io/links`, JSON of names and addresses.

One rule: pure. Whoever may write a job writes any text there, so only whole http and https addresses become links, and
what is left out is named.
"""

import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from crds import excerpts, labels
from kube.api import Manifest

MOST = 20
"""The most links of a job."""
LONGEST_TEXT = 64 * 1024
LONGEST_NAME, LONGEST_ADDRESS = 80, 2_000
SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True)
class Links:
    """The links of a job."""

    shown: tuple[tuple[str, str], ...] = ()
    """Names and addresses."""
    left_out: tuple[str, ...] = ()
    """What is not shown, and why."""


def read(item: Manifest) -> Links:
    """Return the links of a job."""
    text = (item["metadata"].get("annotations") or {}).get(labels.LINKS)
    if not isinstance(text, str) or not text:
        return Links()
    if len(text) > LONGEST_TEXT:
        return Links(left_out=(f"all: the annotation has {len(text)} characters, more than {LONGEST_TEXT}",))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return Links(left_out=(f"all: the annotation {labels.LINKS} is not a JSON object of names and addresses",))
    shown, left_out = [], []
    for name, address in list(found.items())[:MOST]:
        label = excerpts.excerpt(excerpts.one_line(name), LONGEST_NAME)
        if label and is_address(address):
            shown.append((label, address))
        else:
            left_out.append(f"{label or 'a link without a name'}: not a whole http or https address")
    if len(found) > MOST:
        left_out.append(f"{len(found) - MOST} more: a job has at most {MOST} links")
    return Links(tuple(shown), tuple(left_out))


def is_address(value: object) -> bool:
    """Return whether a value is a whole http or https address, which names no user and no password."""
    if not isinstance(value, str) or len(value) > LONGEST_ADDRESS or not value.isprintable() or " " in value:
        return False
    try:
        parts = urlsplit(value)
        return parts.scheme in SCHEMES and bool(parts.hostname) and "@" not in parts.netloc and "\\" not in value
    except ValueError:
        return False
