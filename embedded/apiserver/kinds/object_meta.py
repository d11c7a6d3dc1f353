"""ObjectMeta: its schema, its validation, and the rules for names.

One rule: fields that the server owns (uid, times, generation, resourceVersion) are never taken from a client.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from crds import timestamps
from embedded.apiserver import status_errors
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

_MERGED = {"x-kubernetes-patch-strategy": "merge"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("name", "generateName", "namespace", "uid", "selfLink")},
        "resourceVersion": {"type": "string"},
        **{name: {"type": "string", "format": "date-time"} for name in ("creationTimestamp", "deletionTimestamp")},
        **{name: {"type": "integer"} for name in ("generation", "deletionGracePeriodSeconds")},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "finalizers": {"type": "array", "items": {"type": "string"}, **_MERGED},
        "managedFields": {"x-kubernetes-preserve-unknown-fields": True},
        "ownerReferences": {
            **_MERGED,
            "x-kubernetes-patch-merge-key": "uid",
            "type": "array",
            "items": {
                "type": "object",
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
    "resourceVersion",
    "selfLink",
    "managedFields",
)
"""The fields of metadata that an update keeps from the stored object."""

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_is_label: Callable[[str], object] = re.compile(_LABEL).fullmatch
_is_subdomain: Callable[[str], object] = re.compile(_SUBDOMAIN).fullmatch
_is_qualified: Callable[[str], object] = re.compile(_QUALIFIED).fullmatch
_LONGEST_KEPT = 320
"""Maximum number of characters of a key whose problems are cached; no valid key is longer."""
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
_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}
_MOST_ANNOTATIONS = 256 * 1024


_LAST_SECOND = 253_402_300_799
"""The end of the year 9999, the last time in RFC 3339."""


def timestamp(seconds: float) -> str:
    """Return a metav1.Time for seconds since the epoch; a time after the year 9999 becomes its last second."""
    return timestamps.format_time(min(int(seconds), _LAST_SECOND))


def dns_label_problem(text: str) -> str:
    """Return why a text is not a DNS label; empty if it is valid."""
    if len(text) > 63:
        return "must be no more than 63 characters"
    if _is_label(text):
        return ""
    return "must not contain dots" if _is_subdomain(text) else _LABEL_DETAIL


def dns_subdomain_problem(text: str) -> str:
    """Return why a text is not a DNS subdomain; empty if it is valid."""
    if len(text) > 253:
        return "must be no more than 253 characters"
    return "" if _is_subdomain(text) else _SUBDOMAIN_DETAIL


def ip_address_problem(text: str) -> str:
    """Return why a text is not an IP address; empty if it is valid."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
    return ""


def label_key_problems(key: str) -> tuple[str, ...]:
    """Return why a text is not a qualified name (a label's key, a finalizer); empty if it is valid."""
    return _check_label_key(key) if len(key) <= _LONGEST_KEPT else _check_label_key.__wrapped__(key)


@lru_cache(4096)
def _check_label_key(key: str) -> tuple[str, ...]:
    """Return the problems of a key. The problems of keys are cached, because most objects have the same few keys."""
    prefix, slash, name = key.partition("/")
    if not slash:
        prefix, name = "", key
    if "/" in name:
        detail = _QUALIFIED_DETAIL.removeprefix("name part must consist").join(("a valid label key must consist", ""))
        return (f"{detail} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    problems = ["prefix part must be non-empty"] if slash and not prefix else []
    if prefix and dns_subdomain_problem(prefix):
        problems.append(f"prefix part {dns_subdomain_problem(prefix)}")
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 characters")
    if not _is_qualified(name):
        problems.append(_QUALIFIED_DETAIL)
    return tuple(problems)


def label_value_problems(value: str) -> list[str]:
    """Return why a text is not a label's value; empty if it is valid."""
    problems = ["must be no more than 63 characters"] if len(value) > 63 else []
    if value and not _is_qualified(value):
        problems.append(_VALUE_DETAIL)
    return problems


def check(metadata: Mapping[str, Any], *, simple_names: bool) -> Iterator[Cause]:
    """Yield the problems of an object's metadata, except for problems that the schema finds."""
    problem_of = dns_label_problem if simple_names else dns_subdomain_problem
    prefix, name = metadata.get("generateName", ""), metadata.get("name")
    masked = f"{prefix[:-1]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix
    if prefix and problem_of(masked):
        yield status_errors.invalid_value("metadata.generateName", prefix, problem_of(masked))
    if not name:
        yield status_errors.required("metadata.name", "name or generateName is required")
    elif problem_of(name):
        yield status_errors.invalid_value("metadata.name", name, problem_of(name))
    yield from check_labels(metadata.get("labels") or {}, "metadata.labels")
    yield from _check_annotations(metadata.get("annotations") or {})
    for finalizer in metadata.get("finalizers") or ():
        yield from status_errors.invalid_values("metadata.finalizers", finalizer, label_key_problems(finalizer))
    yield from _check_owners(metadata.get("ownerReferences") or ())


def check_labels(labels: Mapping[str, str], path: str) -> Iterator[Cause]:
    """Yield the problems of labels, or of a selector of labels."""
    for key, value in labels.items():
        yield from status_errors.invalid_values(path, key, label_key_problems(key))
        yield from status_errors.invalid_values(path, value, label_value_problems(value))


def check_finalizers(metadata: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the problems of finalizers of a built-in resource that have no domain and are not standard finalizers."""
    for index, name in enumerate(metadata.get("finalizers") or ()):
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            yield status_errors.invalid_value(f"metadata.finalizers[{index}]", name, detail)


def _check_annotations(annotations: Mapping[str, str]) -> Iterator[Cause]:
    for key in annotations:
        yield from status_errors.invalid_values("metadata.annotations", key, label_key_problems(key.lower()))
    if sum(len(key) + len(value) for key, value in annotations.items()) > _MOST_ANNOTATIONS:
        yield status_errors.too_long("metadata.annotations", _MOST_ANNOTATIONS)


def _check_owners(owners: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    path, leader = "metadata.ownerReferences", ""
    for owner in owners:
        version = owner.get("apiVersion", "")
        if not version or version.count("/") > 1:
            yield status_errors.invalid_value(f"{path}.apiVersion", version, "version must not be empty")
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                yield status_errors.invalid_value(f"{path}.{name}", "", "must not be empty")
        if (version, owner.get("kind")) == ("v1", "Event"):
            yield status_errors.invalid_value(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            owner_name = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if leader:
                detail = f'Found "true" in references for {leader} and {owner_name}'
                yield status_errors.invalid_value(
                    path, owners, f"Only one reference can have Controller set to true. {detail}"
                )
            leader = leader or owner_name


def check_namespace_on_url(namespace: str, url_namespace: str) -> None:
    """Raise StatusError (BadRequest) unless an object has the namespace that the URL names."""
    if namespace != url_namespace:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise status_errors.bad_request(message)


def check_name_on_url(name: Any, url_name: str) -> None:
    """Raise StatusError (BadRequest) unless an object has the name that the URL names."""
    if not name:
        why = f"the name of the object ({url_name} based on URL) was undeterminable: name must be provided"
        raise status_errors.bad_request(why)
    if name != url_name:
        raise status_errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({url_name})"
        )


def check_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the problems of changes of metadata."""
    added = [item for item in new.get("finalizers") or () if item not in (old.get("finalizers") or ())]
    if added and "deletionTimestamp" in old:
        detail = "no new finalizers can be added if the object is being deleted, found new finalizers " + str(added)
        yield status_errors.not_allowed("metadata.finalizers", detail)


def carry_over(new: Manifest, old: Manifest) -> None:
    """Copy the fields that the server owns from the old metadata to the new object."""
    server_part = {name: old["metadata"][name] for name in SERVER_OWNED if name in old["metadata"]}
    client_part = {name: value for name, value in new["metadata"].items() if name not in SERVER_OWNED}
    new["metadata"] = {**client_part, **server_part}
