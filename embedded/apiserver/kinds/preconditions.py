"""What a client may demand of the object it is about to change.

One rule: an object that is not the one the client has seen is left as it is (409).
"""

from embedded.apiserver import status_errors
from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.storage.objects import Stored

_KEPT_AS = {"services": "services/specs", "nodes": "minions"}


def check(kind: Kind, current: Stored, uid: str, version: str, *, dry_run: bool = False) -> None:
    """Conflict unless the object has this uid and this resourceVersion; empty demands nothing."""
    for what, wanted, found in (("UID", uid, current.uid), ("ResourceVersion", version, str(current.version))):
        if wanted and wanted != found:
            failed(kind, (current.namespace, current.name), (what, wanted, found), dry_run=dry_run)


def failed(kind: Kind, place: tuple[str, str], demand: tuple[str, str, str], *, dry_run: bool) -> None:
    """Conflict: what was demanded (what, the wanted value, the found one) of the object at a place is not so."""
    what, wanted, found = demand
    resource = kind.resource
    group = resource.group if kind.custom or resource.kind == "CustomResourceDefinition" else ""
    root = "" if dry_run else "registry"
    key = "/".join(filter(None, [root, group, _KEPT_AS.get(kind.storage, resource.plural), *place]))
    why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
    told = f"StorageError: invalid object, Code: 4, Key: /{key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    raise status_errors.conflict(resource, place[1], told)
