"""Admits the objects that clients send: checks their type, converts their fields, and removes unknown fields.

One rule: admission comes before every look-up, so that a body that is no object of the kind is refused for that reason.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from crds.excerpts import excerpt
from embedded.apiserver import status_errors
from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.schema import json_types, pruning, typed_fields
from embedded.apiserver.wire.options import WriteOptions
from kube.api import Manifest

_MOST_UNKNOWN = 50
"""The most unknown fields to report for one object: each warning is a header, and clients read about 100 headers."""
_LONGEST_PATH = 500
_OWNED_TWICE = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
)


def admit(
    kind: Kind, manifest: Any, options: WriteOptions, sections: set[str] | None = None, repeated: Sequence[str] = ()
) -> tuple[str, ...]:
    """Check and convert an object, or only some of its sections, in place; return the warnings for the client.

    `repeated` are the paths of the keys that its text has twice. Raise StatusError (BadRequest, Invalid) if the object
    is wrong.
    """
    _check_type(kind, manifest, options)
    try:
        unknown = _settle_fields(kind, manifest, set(manifest) if sections is None else sections)
    except status_errors.StatusError as refusal:
        raise _decoding_error(kind, str(refusal), options) from None
    once = _dedup_owners(manifest["metadata"])
    texts = [*(f'duplicate field "{excerpt(path, _LONGEST_PATH)}"' for path in repeated),
             *(f'unknown field "{excerpt(path, _LONGEST_PATH)}"' for path in unknown)][:_MOST_UNKNOWN]  # fmt: skip
    if texts and options.validation == "Strict":
        raise _decoding_error(kind, "strict decoding error: " + ", ".join(texts), options)
    return (*(texts if options.validation != "Ignore" else ()), *once)


def _dedup_owners(meta: Manifest) -> tuple[str, ...]:
    """Remove repeated owners from an object's metadata; return the warnings."""
    owners = meta.get("ownerReferences")
    if not isinstance(owners, list):
        return ()
    owners_once = [owner for index, owner in enumerate(owners) if owner not in owners[:index]]
    if len(owners_once) == len(owners):
        return ()
    repeated = dict.fromkeys(str(o.get("uid", "")) for index, o in enumerate(owners) if o in owners[:index])
    meta["ownerReferences"] = owners_once
    return (f"{_OWNED_TWICE}{', '.join(repeated)}",)


def _settle_fields(kind: Kind, manifest: Manifest, sections: set[str]) -> list[str]:
    if not kind.custom:
        unknown = typed_fields.settle(manifest, kind.schema)
        manifest.setdefault("metadata", {})
        return unknown
    node = kind.schema.properties["metadata"]
    unknown = typed_fields.settle(manifest["metadata"], node, "metadata") if "metadata" in sections else []
    return unknown + pruning.settle_sections(manifest, kind.schema, sections)


def _decoding_error(kind: Kind, message: str, options: WriteOptions) -> status_errors.StatusError:
    if options.patch:
        return status_errors.unreadable_patch(message)
    where = f'{kind.resource.kind} in version "{kind.resource.version}"'
    return status_errors.bad_request(f"{where} cannot be handled as a {kind.resource.kind}: {message}")


def _check_type(kind: Kind, manifest: Any, options: WriteOptions) -> None:
    if not isinstance(manifest, dict):
        message = (
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_types.go_type_name(manifest)}"
        )
        raise _decoding_error(kind, message, options)
    for key in ("apiVersion", "kind"):
        if not isinstance(manifest.get(key), str | None):
            go_type = json_types.go_type_name(manifest[key])
            message = f"couldn't get version/kind; json parse error: json: cannot unmarshal {go_type} into {key}"
            if options.patch:
                raise status_errors.unreadable_patch(message)
            expected = f"must be of type {kind.resource.kind}"
            raise status_errors.bad_request(f"the object provided is unrecognized ({expected}): {message}")
    if manifest.get("metadata") is None:
        manifest["metadata"] = {}
    if not isinstance(manifest["metadata"], dict):
        go_type = json_types.go_type_name(manifest["metadata"])
        message = f"json: cannot unmarshal {go_type} into Go value of type v1.ObjectMeta"
        raise _decoding_error(kind, message, options)
    for key, expected in (("kind", kind.resource.kind), ("apiVersion", kind.resource.api_version)):
        value = manifest.get(key) or ("" if kind.custom else expected)
        manifest[key] = value
        if value != expected:
            _raise_wrong_type(kind, key, value, manifest, options)


def _raise_wrong_type(kind: Kind, key: str, value: Any, manifest: Manifest, options: WriteOptions) -> None:
    resource = kind.resource
    if not kind.custom:
        version = str(manifest.get("apiVersion", resource.api_version))
        name_of_kind = manifest.get("kind", resource.kind)
        unknown = f'no kind "{name_of_kind}" is registered for version "{version}"'
        if options.patch:
            raise status_errors.unreadable_patch(unknown)
        where = f'{name_of_kind} in version "{version.rpartition("/")[2]}" cannot be handled as a {resource.kind}'
        raise status_errors.bad_request(f"{where}: {unknown}")
    if key == "kind" and not value and options.validation == "Ignore":
        raise _decoding_error(kind, "Object 'Kind' is missing", options)
    if key == "kind" and not value:
        raise status_errors.bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): "
                                   "Object 'Kind' is missing")  # fmt: skip
    if key == "kind":
        other = replace(resource, kind=str(value))
        name = str(manifest["metadata"].get("name") or "")
        raise status_errors.invalid(
            other, name, [status_errors.invalid_value("kind", value, f"must be {resource.kind}")]
        )
    message = f"the API version in the data ({value}) does not match the expected API version ({resource.api_version})"
    raise status_errors.bad_request(message)
