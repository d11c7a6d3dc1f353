"""Asking the leader to build the queues anew.

One rule: who asks needs no right on Redis, only on the Lease. The request is a fresh word in an annotation; the leader
answers by writing the same word as done, after the rebuild. A leader that dies in between leaves the request to the
next one, and asking twice is asking once.
"""

import secrets
import time
from collections.abc import Callable
from typing import Any

from coordinator.errors import CoordinatorError
from crds.api_resources import LEASES
from crds.labels import GROUP
from kube import errors
from kube.api import Cluster, Manifest

ASKED = f"{GROUP}/repair"
"""Annotation of the Lease: a word somebody made up who wants the queues built anew."""
DONE = f"{GROUP}/repaired"
"""Annotation of the Lease: the word of the repair that was done last."""
_LOOK_SECONDS = 0.2


class NoRepair(CoordinatorError):
    """The leader did not do it, or there is none."""


def asked(lease: Manifest) -> str:
    """The word of a repair that has not been done yet; empty if there is none."""
    annotations = lease["metadata"].get("annotations") or {}
    word = str(annotations.get(ASKED, ""))
    return word if word != annotations.get(DONE) else ""


def ask(
    cluster: Cluster, name: str, namespace: str, *, seconds: float, pause: Callable[[float], Any] = time.sleep
) -> None:
    """Have the leader build the queues anew, and wait until it has. NoRepair if there is no leader or no answer within
    `seconds`."""
    word = secrets.token_hex(8)
    if not _holder(cluster.get(LEASES, name, namespace)):
        raise NoRepair("no coordinator leads, so nobody can mend anything: start one (torchq coordinator)")
    cluster.patch(LEASES, name, {"metadata": {"annotations": {ASKED: word}}}, namespace)
    deadline = time.monotonic() + seconds
    while not _is_done(lease := _read(cluster, name, namespace), word):
        if time.monotonic() > deadline:
            raise NoRepair(
                f"the leader ({_holder(lease) or 'there is none now'}) has not mended anything within {seconds:.0f} s; "
                "the request stays with the Lease, see the coordinator's log"
            )
        pause(_LOOK_SECONDS)


def _read(cluster: Cluster, name: str, namespace: str) -> Manifest:
    """The Lease; an API server that is away for a moment is asked again."""
    try:
        return cluster.get(LEASES, name, namespace)
    except (errors.Unreachable, errors.ServerError, errors.TooManyRequests, errors.NotFound):
        return {"metadata": {}}


def _holder(lease: Manifest) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _is_done(lease: Manifest, word: str) -> bool:
    annotations = lease["metadata"].get("annotations") or {}
    # Somebody who asked later is served by the same rebuild or a later one; either way ours is done with it.
    return annotations.get(DONE) == word or (annotations.get(ASKED) not in (None, word) and not asked(lease))
