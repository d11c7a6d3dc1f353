"""Preconditions of a client on the object that it changes: its uid and its resourceVersion.

One rule: an object that does not meet the preconditions stays unchanged (409).
"""

from embedded.apiserver import status_errors
from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.storage.objects import StoredObject

_KEPT_AS = {"services": "services/specs", "nodes": "minions"}


def check(kind: Kind, current: StoredObject, uid: str, version: str, *, dry_run: bool = False) -> None:
    """Raise StatusError (Conflict) unless the object has this uid and this resourceVersion.

    An empty value is not checked.
    """
    for field, expected, actual in (("UID", uid, current.uid), ("ResourceVersion", version, str(current.version))):
        if expected and expected != actual:
            raise_conflict(kind, (current.namespace, current.name), (field, expected, actual), dry_run=dry_run)


def raise_conflict(kind: Kind, place: tuple[str, str], demand: tuple[str, str, str], *, dry_run: bool) -> None:
    """Raise StatusError (Conflict) for the object at a place (namespace, name).

    The demand is the name of the field, the expected value, and the actual value.
    """
    field, expected, actual = demand
    resource = kind.resource
    group = resource.group if kind.custom or resource.kind == "CustomResourceDefinition" else ""
    root = "" if dry_run else "registry"
    key = "/".join(filter(None, [root, group, _KEPT_AS.get(kind.storage, resource.plural), *place]))
    reason = f"Precondition failed: {field} in precondition: {expected}, {field} in object meta: {actual}"
    message = f"StorageError: invalid object, Code: 4, Key: /{key}, ResourceVersion: 0, AdditionalErrorMsg: {reason}"
    raise status_errors.conflict(resource, place[1], message)
