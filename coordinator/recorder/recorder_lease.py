"""The Lease of the recorder: up to when the history is recorded, and where the recorder answers.

One rule: the Lease says only what the database has already. It is renewed only while that is so, and its times are
those of the API server's clock.

Several recorders may write the same rows. The holder of the Lease alone writes what is said about all of them: up to
when everything is recorded, and what nobody has seen.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from coordinator import release
from coordinator.leader.election import (
    LeaseConfig,
    ObservedLease,
    may_take,
    suspend_aware_clock,
)
from coordinator.lease_settings import VERSION_ANNOTATION
from coordinator.rbac.permissions import RECORDER_LEASE
from crds import timestamps
from crds.api_resources import LEASES
from crds.labels import RECORDED_UNTIL, RECORDED_VERSION
from kube import errors
from kube.api import Cluster, Manifest

LEASE_SECONDS = 20.0
"""How long a recorder sees the Lease of another one unchanged before it takes the Lease."""
RENEW_SECONDS = 5.0
"""The pause between two renewals."""
log = logging.getLogger(__name__)


class RecorderLease:
    """The Lease, as one recorder sees it and competes for it. One thread uses the object."""

    def __init__(
        self,
        cluster: Cluster,
        identity: str,
        namespace: str,
        notes: Mapping[str, str],
        clock: Callable[[], float] = suspend_aware_clock,
    ) -> None:
        """`notes` are the annotations that say where the recorder answers."""
        self._cluster = cluster
        self._config = LeaseConfig(identity, namespace, LEASE_SECONDS, LEASE_SECONDS, RENEW_SECONDS)
        self._notes = {VERSION_ANNOTATION: release.version() or None, **notes}
        self._clock = clock
        self._observed = ObservedLease("", "", clock())
        self._lease: Manifest | None = None
        """The Lease as this process has written it last; None if another process may have written it since."""

    def is_free(self) -> bool:
        """Return whether this process holds the Lease, or may take it. Raises ClusterError."""
        lease = self._lease or self._read()
        spec, now = _spec(lease), self._clock()
        self._observed = self._observed.update(spec.get("holderIdentity") or "", spec.get("renewTime") or "", now)
        self._lease = lease if may_take(self._observed, self._config, now) else None
        return self._lease is not None

    def renew(self, version: int, until: float) -> bool:
        """Take or renew the Lease, and say how far the history is recorded; return whether no other process was faster.

        Call it after `is_free`. Raises ClusterError.
        """
        lease, self._lease = self._lease, None
        spec = _spec(lease or {})
        changes: dict[str, Any] = {
            "holderIdentity": self._config.identity,
            "leaseDurationSeconds": round(LEASE_SECONDS),
            "renewTime": timestamps.format_micro_time(until),
        }
        if spec.get("holderIdentity") != self._config.identity:
            changes |= {"acquireTime": changes["renewTime"], "leaseTransitions": spec.get("leaseTransitions", 0) + 1}
        notes = {**self._notes, RECORDED_VERSION: str(version), RECORDED_UNTIL: timestamps.format_time(until)}
        return self._write({"metadata": {"annotations": notes}, "spec": changes}, lease)

    def release(self) -> None:
        """Hand the Lease back, so that another recorder need not wait until it expires."""
        lease, self._lease = self._lease, None
        if lease is None or _spec(lease).get("holderIdentity") != self._config.identity:
            return
        try:
            self._write({"spec": {"holderIdentity": ""}}, lease)
        except errors.ClusterError as error:
            log.info("the recorder's Lease was not handed back: %s", error)

    def _write(self, patch: Manifest, lease: Manifest | None) -> bool:
        version = lease["metadata"]["resourceVersion"] if lease is not None else ""
        try:
            self._lease = self._cluster.patch(
                LEASES, RECORDER_LEASE, patch, self._config.namespace, resource_version=version
            )
        except (errors.Conflict, errors.NotFound):
            return False
        return True

    def _read(self) -> Manifest:
        try:
            return self._cluster.get(LEASES, RECORDER_LEASE, self._config.namespace)
        except errors.NotFound:
            body = LEASES.manifest({"name": RECORDER_LEASE}, spec={})
            return self._cluster.create(LEASES, body, self._config.namespace)


def _spec(lease: Manifest) -> dict[str, Any]:
    return lease.get("spec") or {}
