"""What a client sent, made an object of its kind: its type, its fields, nothing else.

One rule: this comes before anything is looked up, so that what is no object is refused as such and nothing else.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from embedded.apiserver import status_errors
from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.schema import json_types, pruning, typed_fields
from embedded.apiserver.wire.options import WriteOptions
from kube.api import Manifest

_MOST_UNKNOWN = 50
"""Unknown fields that are told of one object: each warning is a header, of which clients read about 100."""
_LONGEST_PATH = 500
_OWNED_TWICE = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
)


def take(
    kind: Kind, manifest: Any, options: WriteOptions, sections: set[str] | None = None, twice: Sequence[str] = ()
) -> tuple[str, ...]:
    """Settle an object (or only some of its sections) in place; what to warn the client of. BadRequest, Invalid."""
    _check_type(kind, manifest, options)
    try:
        unknown = _settle(kind, manifest, set(manifest) if sections is None else sections)
    except status_errors.Refusal as refusal:
        raise _unreadable(kind, str(refusal), options) from None
    once = _once(manifest["metadata"])
    texts = [*(f'duplicate field "{path[:_LONGEST_PATH]}"' for path in twice),
             *(f'unknown field "{path[:_LONGEST_PATH]}"' for path in unknown)][:_MOST_UNKNOWN]  # fmt: skip
    if texts and options.validation == "Strict":
        raise _unreadable(kind, "strict decoding error: " + ", ".join(texts), options)
    return (*(texts if options.validation != "Ignore" else ()), *once)


def _once(own: Manifest) -> tuple[str, ...]:
    """Take owners that are named twice out of an object's metadata; what to warn of."""
    owners = own.get("ownerReferences")
    if not isinstance(owners, list):
        return ()
    kept = [owner for index, owner in enumerate(owners) if owner not in owners[:index]]
    if len(kept) == len(owners):
        return ()
    twice = dict.fromkeys(str(o.get("uid", "")) for index, o in enumerate(owners) if o in owners[:index])
    own["ownerReferences"] = kept
    return (f"{_OWNED_TWICE}{', '.join(twice)}",)


def _settle(kind: Kind, manifest: Manifest, sections: set[str]) -> list[str]:
    if not kind.custom:
        unknown = typed_fields.settle(manifest, kind.schema)
        manifest.setdefault("metadata", {})
        return unknown
    own = kind.schema.properties["metadata"]
    unknown = typed_fields.settle(manifest["metadata"], own, "metadata") if "metadata" in sections else []
    return unknown + pruning.settle_sections(manifest, kind.schema, sections)


def _unreadable(kind: Kind, message: str, options: WriteOptions) -> status_errors.Refusal:
    if options.patch:
        return status_errors.unreadable_patch(message)
    where = f'{kind.resource.kind} in version "{kind.resource.version}"'
    return status_errors.bad_request(f"{where} cannot be handled as a {kind.resource.kind}: {message}")


def _check_type(kind: Kind, manifest: Any, options: WriteOptions) -> None:
    if not isinstance(manifest, dict):
        message = (
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_types.go_type_name(manifest)}"
        )
        raise _unreadable(kind, message, options)
    for key in ("apiVersion", "kind"):
        if not isinstance(manifest.get(key), str | None):
            word = json_types.go_type_name(manifest[key])
            message = f"couldn't get version/kind; json parse error: json: cannot unmarshal {word} into {key}"
            if options.patch:
                raise status_errors.unreadable_patch(message)
            raise status_errors.bad_request(f"the object provided is unrecognized (must be of type {kind.resource.kind}): "
                                       f"{message}")  # fmt: skip
    if manifest.get("metadata") is None:
        manifest["metadata"] = {}
    if not isinstance(manifest["metadata"], dict):
        word = json_types.go_type_name(manifest["metadata"])
        message = f"json: cannot unmarshal {word} into Go value of type v1.ObjectMeta"
        raise _unreadable(kind, message, options)
    for key, expected in (("kind", kind.resource.kind), ("apiVersion", kind.resource.api_version)):
        found = manifest.get(key) or ("" if kind.custom else expected)
        manifest[key] = found
        if found != expected:
            _refuse_type(kind, key, found, manifest, options)


def _refuse_type(kind: Kind, key: str, found: Any, manifest: Manifest, options: WriteOptions) -> None:
    resource = kind.resource
    if not kind.custom:
        version = str(manifest.get("apiVersion", resource.api_version))
        word = manifest.get("kind", resource.kind)
        unknown = f'no kind "{word}" is registered for version "{version}"'
        if options.patch:
            raise status_errors.unreadable_patch(unknown)
        where = f'{word} in version "{version.rpartition("/")[2]}" cannot be handled as a {resource.kind}'
        raise status_errors.bad_request(f"{where}: {unknown}")
    if key == "kind" and not found and options.validation == "Ignore":
        raise _unreadable(kind, "Object 'Kind' is missing", options)
    if key == "kind" and not found:
        raise status_errors.bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): "
                                   "Object 'Kind' is missing")  # fmt: skip
    if key == "kind":
        other = replace(resource, kind=str(found))
        name = str(manifest["metadata"].get("name") or "")
        raise status_errors.invalid(other, name, [status_errors.wrong("kind", found, f"must be {resource.kind}")])
    message = f"the API version in the data ({found}) does not match the expected API version ({resource.api_version})"
    raise status_errors.bad_request(message)
