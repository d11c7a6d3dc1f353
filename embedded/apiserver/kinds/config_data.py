"""Validation of ConfigMaps and Secrets, and of their changes.

One rule: the data of an object that is marked immutable never changes.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from embedded.apiserver import status_errors
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

_KEY = r"[-._a-zA-Z0-9]+"
_KEY_DETAIL = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    f"'key-name', regex used for validation is '{_KEY}')"
)
_LARGEST = 1024 * 1024
_ACCOUNT = "kubernetes.io/service-account.name"
_JSON = {".dockerconfigjson": "kubernetes.io/dockerconfigjson", ".dockercfg": "kubernetes.io/dockercfg"}
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/basic-auth": ("username", "password"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    **{kind: (key,) for key, kind in _JSON.items()},
}
"""The required keys, by the type of a Secret."""
_FINAL = "field is immutable when `immutable` is set"


def check_config_map(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """Yield the problems of a ConfigMap, or of its change."""
    yield from _check_keys(new.get("data") or {}, "data")
    yield from _check_keys(new.get("binaryData") or {}, "binaryData")
    for key in (new.get("data") or {}).keys() & (new.get("binaryData") or {}).keys():
        yield status_errors.invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
    sizes = [len(text.encode()) for text in (new.get("data") or {}).values()]
    if sum(sizes) + sum(len(text) // 4 * 3 for text in (new.get("binaryData") or {}).values()) > _LARGEST:
        yield status_errors.too_long("[]", _LARGEST)
    yield from _check_final(new, old, ("data", "binaryData"))


def check_secret(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """Yield the problems of a Secret, or of its change."""
    yield from _check_keys(new.get("data") or {}, "data")
    if sum(len(text) // 4 * 3 for text in (new.get("data") or {}).values()) > _LARGEST:
        yield status_errors.too_long("data", _LARGEST)
    yield from _check_type(new, new.get("data") or {})
    if old is not None and new.get("type") != old.get("type"):
        yield status_errors.immutable("type", new.get("type", ""))
    yield from _check_final(new, old, ("data",))


def _check_type(new: Manifest, data: Mapping[str, str]) -> Iterator[Cause]:
    """Yield the problems of a Secret that lacks data which its type requires."""
    kind = new.get("type", "")
    required = _NEEDED.get(kind, ())
    if kind == "kubernetes.io/basic-auth" and any(key in data for key in required):
        required = ()  # one of the two keys is enough
    yield from (status_errors.required(f"data[{key}]") for key in required if key not in data)
    for key in _JSON.keys() & data.keys() if kind in _JSON.values() else ():
        try:
            json.loads(base64.b64decode(data[key]))
        except ValueError as error:
            yield status_errors.invalid_value(
                f"data[{key}]", "<secret contents redacted>", f"is no JSON: {str(error).partition(':')[0]}"
            )
    if kind == "kubernetes.io/service-account-token" and not (new["metadata"].get("annotations") or {}).get(_ACCOUNT):
        yield status_errors.required(f"metadata.annotations[{_ACCOUNT}]")


def key_problems(key: str) -> Iterator[str]:
    """Yield why a text is not a key of a ConfigMap or Secret."""
    if len(key) > 253:
        yield "must be no more than 253 characters"
    elif not re.fullmatch(_KEY, key):
        yield _KEY_DETAIL
    elif key in (".", ".."):
        yield f"must not be '{key}'"
    elif key.startswith(".."):
        yield "must not start with '..'"


def _check_keys(entries: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for key in entries:
        yield from status_errors.invalid_values(f"{path}[{key}]", key, key_problems(key))


def _check_final(new: Manifest, old: Manifest | None, fields: tuple[str, ...]) -> Iterator[Cause]:
    if old is None or not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield status_errors.not_allowed("immutable", _FINAL)
    for field in fields:
        if new.get(field) != old.get(field):
            yield status_errors.not_allowed(field, _FINAL)
