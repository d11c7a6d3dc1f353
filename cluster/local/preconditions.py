"""What a client may demand of the object it is about to change.

One rule: an object that is not the one the client has seen is left as it is (409).
"""

from cluster.local import refusals
from cluster.local.objects import Stored
from crds.resources import Resource


def check(resource: Resource, current: Stored, uid: str, version: str) -> None:
    """Conflict unless the object has this uid and this resourceVersion; empty demands nothing."""
    for what, wanted, found in (("UID", uid, current.uid), ("ResourceVersion", version, str(current.version))):
        if wanted and wanted != found:
            why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            raise refusals.conflict(resource, current.name, why)
