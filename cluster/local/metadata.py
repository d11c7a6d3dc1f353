"""ObjectMeta: what every object carries, who may set which part of it, and what a name looks like.

One rule: what the server owns (uid, times, generation, resourceVersion) is never taken from a client.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from cluster.api import Manifest
from cluster.local import refusals
from cluster.local.refusals import Cause

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("name", "generateName", "namespace", "uid", "selfLink")},
        **{name: {"type": "string"} for name in ("resourceVersion", "creationTimestamp", "deletionTimestamp")},
        **{name: {"type": "integer"} for name in ("generation", "deletionGracePeriodSeconds")},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "managedFields": {"x-kubernetes-preserve-unknown-fields": True},
        "ownerReferences": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["apiVersion", "kind", "name", "uid"],
                "properties": {
                    **{name: {"type": "string"} for name in ("apiVersion", "kind", "name", "uid")},
                    **{name: {"type": "boolean"} for name in ("controller", "blockOwnerDeletion")},
                },
            },
        },
    },
}
"""ObjectMeta as a structural schema."""

SERVER_OWNED = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
    "resourceVersion",
    "selfLink",
)
"""Fields of the metadata that an update carries over from the stored object."""

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_DETAIL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_DETAIL = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_QUALIFIED_DETAIL = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_DETAIL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'({_QUALIFIED})?')"
)
_MOST_ANNOTATIONS = 256 * 1024


_LAST_SECOND = 253_402_300_799
"""The end of the year 9999: RFC 3339 knows none after it."""


def timestamp(seconds: float) -> str:
    """A metav1.Time: RFC 3339 in whole seconds; what is beyond its end is its end."""
    return datetime.fromtimestamp(min(int(seconds), _LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def label_problem(text: str) -> str:
    """Why a text is no DNS label; empty if it is one."""
    if len(text) > 63:
        return "must be no more than 63 characters"
    return "" if re.fullmatch(_LABEL, text) else _LABEL_DETAIL


def subdomain_problem(text: str) -> str:
    """Why a text is no DNS subdomain; empty if it is one."""
    if len(text) > 253:
        return "must be no more than 253 characters"
    return "" if re.fullmatch(_SUBDOMAIN, text) else _SUBDOMAIN_DETAIL


def check(metadata: Mapping[str, Any], *, simple_names: bool) -> Iterator[Cause]:
    """Everything wrong with an object's metadata, beyond its schema."""
    name = metadata.get("name")
    if not name:
        yield refusals.required("metadata.name", "name or generateName is required")
    else:
        problem = label_problem(name) if simple_names else subdomain_problem(name)
        if problem:
            yield refusals.wrong("metadata.name", name, problem)
    yield from _check_labels(metadata.get("labels") or {})
    yield from _check_annotations(metadata.get("annotations") or {})
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if not _is_qualified(finalizer):
            yield refusals.wrong(f"metadata.finalizers[{index}]", finalizer, _QUALIFIED_DETAIL)


def _check_labels(labels: Mapping[str, str]) -> Iterator[Cause]:
    for key, value in labels.items():
        if not _is_qualified(key):
            yield refusals.wrong("metadata.labels", key, _QUALIFIED_DETAIL)
        if len(value) > 63:
            yield refusals.wrong("metadata.labels", value, "must be no more than 63 characters")
        elif value and not re.fullmatch(_QUALIFIED, value):
            yield refusals.wrong("metadata.labels", value, _VALUE_DETAIL)


def _check_annotations(annotations: Mapping[str, str]) -> Iterator[Cause]:
    for key in annotations:
        if not _is_qualified(key.lower()):
            yield refusals.wrong("metadata.annotations", key, _QUALIFIED_DETAIL)
    if sum(len(key) + len(value) for key, value in annotations.items()) > _MOST_ANNOTATIONS:
        yield refusals.too_long("metadata.annotations", _MOST_ANNOTATIONS)


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(re.fullmatch(_QUALIFIED, name)) and len(name) <= 63 and (not slash or not subdomain_problem(prefix))


def check_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    """Changes of metadata that are refused."""
    added = [item for item in new.get("finalizers") or () if item not in (old.get("finalizers") or ())]
    if added and "deletionTimestamp" in old:
        detail = "no new finalizers can be added if the object is being deleted, found new finalizers " + str(added)
        yield refusals.not_allowed("metadata.finalizers", detail)


def carry_over(new: Manifest, old: Manifest) -> None:
    """Put the server's part of the old metadata into the new object."""
    kept = {name: old["metadata"][name] for name in SERVER_OWNED if name in old["metadata"]}
    own = {name: value for name, value in new["metadata"].items() if name not in SERVER_OWNED}
    new["metadata"] = {**own, **kept}
