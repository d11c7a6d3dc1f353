"""ConfigMaps and Secrets: what may be in them, and what may change.

One rule: what is marked immutable stays.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from cluster.api import Manifest
from cluster.local import refusals
from cluster.local.refusals import Cause

_KEY = r"[-._a-zA-Z0-9]+"
_KEY_DETAIL = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    f"'key-name', regex used for validation is '{_KEY}')"
)
_FINAL = "field is immutable when `immutable` is set"


def check_config_map(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """What is wrong with a ConfigMap, or with the change of one."""
    yield from _check_keys(new.get("data") or {}, "data")
    yield from _check_keys(new.get("binaryData") or {}, "binaryData")
    yield from _check_final(new, old, ("data", "binaryData"))


def check_secret(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """What is wrong with a Secret, or with the change of one."""
    yield from _check_keys(new.get("data") or {}, "data")
    if old is not None and new.get("type") != old.get("type"):
        yield refusals.immutable("type", new.get("type", ""))
    yield from _check_final(new, old, ("data",))


def decode(texts: Mapping[str, Any]) -> None:
    """BadRequest unless all are base64."""
    for text in texts.values():
        try:
            base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise refusals.bad_request("illegal base64 data at input byte 0") from None


def _check_keys(entries: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for key in entries:
        if len(key) > 253:
            yield refusals.wrong(f"{path}[{key}]", key, "must be no more than 253 characters")
        elif not re.fullmatch(_KEY, key):
            yield refusals.wrong(f"{path}[{key}]", key, _KEY_DETAIL)
        elif key == "." or key.startswith(".."):
            detail = "must not be '.'" if key == "." else "must not start with '..'"
            yield refusals.wrong(f"{path}[{key}]", key, detail)


def _check_final(new: Manifest, old: Manifest | None, fields: tuple[str, ...]) -> Iterator[Cause]:
    if old is None or not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield refusals.not_allowed("immutable", _FINAL)
    for field in fields:
        if new.get(field) != old.get(field):
            yield refusals.not_allowed(field, _FINAL)
