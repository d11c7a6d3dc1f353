"""Leader election: one coordinator holds a Lease in the cluster, and its epoch fences off all other coordinators.

One rule: a leader trusts its own clock only, and stops leading by itself before another coordinator may start.

The holder renews every `renew_seconds`. A holder whose renewals have failed for `renew_deadline` leads no longer. A
candidate that has seen the Lease unchanged for `lease_seconds` on its own clock takes it. (Kubernetes' leader election
does the same: the clocks of two machines are never compared.) That clock neither jumps nor stands still while the
machine sleeps. Every term raises the epoch. The epoch is kept in an annotation of the Lease, so that it rises even if
Redis has lost all its data.

A coordinator that cannot do a leader's work does not hold the Lease. A candidate that is not fit does not take it, and
a leader that has not been fit for `lease_seconds` hands it back. A leader whose work hangs hands the Lease back before
the hang has lasted for that time. If no coordinator is fit, none leads, and the Lease does not change hands.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coordinator import release
from coordinator.errors import LeadershipLost
from coordinator.leader import rebuild_request
from coordinator.lease_settings import API_ANNOTATION, SERVICE_ANNOTATION, VERSION_ANNOTATION, LeaseSettings
from coordinator.rbac.permissions import LEASE
from crds import integers, timestamps
from crds.api_resources import LEASES
from crds.labels import GROUP
from kube import errors
from kube.api import Cluster, Manifest
from kube.process.turns import Turn, Turns
from queues import redis_keys

EPOCH_ANNOTATION = f"{GROUP}/epoch"
LAYOUT_ANNOTATION = f"{GROUP}/layout"
"""Annotation of the Lease: the leader's layout of keys in Redis, which workers must share."""
ERRORS_ANNOTATION = f"{GROUP}/object-errors"
"""Annotation of the Lease: the objects that the leader has skipped after unforeseen errors, as `torchq doctor` shows
them."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
log = logging.getLogger(__name__)


def process_identity() -> str:
    """Return a new name for this process, so that a restarted process is not mistaken for the process before it."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def suspend_aware_clock() -> float:
    """Return seconds of a clock that is never set and that runs while the machine sleeps (on Linux)."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """The Lease at its last observed change, with the time of that change on this process's clock."""

    holder: str
    renewed: str
    at: float

    def update(self, holder: str, renewed: str, now: float) -> "ObservedLease":
        """Return the newest observation; an unchanged Lease keeps its time."""
        return self if (holder, renewed) == (self.holder, self.renewed) else ObservedLease(holder, renewed, now)


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """How one coordinator competes for the Lease. Times are seconds."""

    identity: str
    """The name of the process."""
    namespace: str
    """The namespace of the Lease."""
    lease_seconds: float
    """How long a candidate sees the Lease unchanged before it takes it."""
    renew_deadline: float
    """How long a leader leads after it has begun its last renewal. It is shorter than a lease, so that what the leader
    has begun is over before another one starts."""
    renew_seconds: float
    """The pause between two attempts to take or to renew the Lease."""

    @classmethod
    def from_settings(cls, identity: str, settings: LeaseSettings) -> "LeaseConfig":
        """Return how a process of this name competes."""
        lease, renewal = settings.lease_seconds, settings.renew_seconds
        return cls(identity, settings.lease_namespace, lease, settings.renew_deadline, renewal)


def may_take(observed: ObservedLease, config: LeaseConfig, now: float) -> bool:
    """Return whether the candidate holds the Lease, or the Lease is free or has not been renewed in time."""
    return observed.holder in ("", config.identity) or now - observed.at >= config.lease_seconds


def pause_until_end(pause: float, observed: ObservedLease, config: LeaseConfig, now: float) -> float:
    """Return the pause before the next attempt. The pause ends no later than the Lease of another coordinator, so that
    the next leader comes as soon as it may.
    """
    return pause if may_take(observed, config, now) else min(pause, observed.at + config.lease_seconds - now)


@dataclass(frozen=True, slots=True)
class Fitness:
    """Whether a process can do a leader's work. Neither of the two calls may take long."""

    unfit: Callable[[], str] = str
    """Returns why the process cannot do the work now, empty if it can. A leader may be unfit for a lease."""
    hung: Callable[[], str] = str
    """Returns how the leader's work hangs, empty if it does not. It is not asked while the process is unfit."""


FIT = Fitness()


class LeaderElection:
    """Competes for the Lease in a thread of its own until stopped.

    `cluster` must give up on a request well within a lease. `skipped` returns the objects that this process has skipped
    after errors.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: LeaseConfig,
        *,
        fitness: Fitness = FIT,
        skipped: Callable[[], str] = str,
        clock: Callable[[], float] = suspend_aware_clock,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._fitness = fitness
        self._skipped = skipped
        self._clock = clock
        self._fit_at = clock()
        self._observed = ObservedLease("", "", clock())
        self._valid_until = float("-inf")
        self._epoch = 0
        self._requested_rebuild = ""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._turn = Turn("")
        self._thread = threading.Thread(target=self._compete, name="leadership")
        self.failing = ""
        self.address = ""
        """The URL of this process's read-only API; empty if other machines cannot reach it or there is none."""
        self.service = ""
        """NAMESPACE/NAME of the Service through which the API server reaches this API; empty if there is none."""

    @property
    def leading(self) -> bool:
        """Whether this process leads at this moment."""
        return self._clock() < self._valid_until

    @property
    def term(self) -> int:
        """The epoch for which this process leads at this moment; 0 if it does not lead."""
        return self._epoch if self.leading else 0

    @property
    def identity(self) -> str:
        """The name of this process."""
        return self._config.identity

    @property
    def epoch(self) -> int:
        """The epoch of this process's last term."""
        return self._epoch

    @property
    def holder(self) -> str:
        """The identity of the leader, as last observed."""
        return self._observed.holder

    @property
    def requested_rebuild(self) -> str:
        """The id of a requested rebuild that is not done yet, as last observed; empty if no request is open."""
        return self._requested_rebuild

    def confirm_rebuild(self, request: str) -> None:
        """Write that the rebuild of this id is done. Raises LeadershipLost if this process leads no longer."""
        with self._lock:
            if not self.leading or _spec(self._read()).get("holderIdentity") != self._config.identity:
                raise LeadershipLost("another coordinator leads")
            self._cluster.patch(
                LEASES,
                LEASE,
                {"metadata": {"annotations": {rebuild_request.DONE_ANNOTATION: request}}},
                self._config.namespace,
            )
            self._requested_rebuild = ""

    def start(self, turns: Turns | None = None) -> None:
        """Start to compete for the Lease, as one of the loops in `turns`."""
        if turns is not None:
            self._turn = turns.loop("election")
        self._thread.start()

    def stop(self) -> None:
        """Stop competing. A leader hands the Lease back, so that the next leader need not wait until it expires."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.leading:
            self._step_down()

    def raise_epoch(self, above: int = 0) -> int:
        """Raise the epoch for a rebuild, beyond `above`; return it. Raises LeadershipLost if this process leads no
        longer."""
        with self._lock:
            lease = self._read()
            if not self.leading or _spec(lease).get("holderIdentity") != self._config.identity:
                raise LeadershipLost("another coordinator leads")
            self._write(lease, max(_epoch(lease), above) + 1)
            return self._epoch

    def step(self) -> str:
        """Try once to take or to keep the Lease; return why this process is unfit, empty if it competes."""
        with self._lock:
            started = self._clock()
            lease = self._read()
            self._requested_rebuild = rebuild_request.pending_request(lease)
            spec = _spec(lease)
            self._observed = self._observed.update(
                spec.get("holderIdentity") or "", spec.get("renewTime") or "", started
            )
            if not may_take(self._observed, self._config, started):
                self._valid_until = float("-inf")
                return self._fitness.unfit()  # so that an admin hears of it before this process is needed
            new_term = not self.leading
            unfit = self._long_unfit(new_term)
            if unfit:
                if not new_term:
                    self._step_down()
                return unfit
            self._write(lease, _epoch(lease) + 1 if new_term else _epoch(lease))
            self._valid_until = started + self._config.renew_deadline
            return ""

    def _long_unfit(self, new_term: bool) -> str:
        """Return why this process must not hold the Lease.

        A candidate must be fit at once; a leader may be unfit for the time of one lease. The work of the leader may
        seem to hang because the store is away: then the store is the reason.
        """
        unfit, now = self._fitness.unfit(), self._clock()
        if not unfit:
            self._fit_at = now
            return self._fitness.hung()
        return unfit if new_term or now - self._fit_at > self._config.lease_seconds else ""

    def _step_down(self) -> None:
        self._valid_until = float("-inf")
        self._release()

    def _compete(self) -> None:
        with self._turn:
            while not self._stopping.is_set():
                self._turn.mark()
                pause = self._config.renew_seconds if self._try() else self._config.renew_seconds / 4
                self._rest(pause_until_end(pause, self._observed, self._config, self._clock()))

    def _rest(self, seconds: float) -> None:
        """Wait until the next attempt is due. The attempt is due earlier if the work of the leader hangs."""
        self._turn.allow(seconds)
        is_over = self._stopping.wait(seconds / 2) or (self.leading and bool(self._fitness.hung()))
        if not is_over:
            self._stopping.wait(seconds / 2)

    def _try(self) -> bool:
        """Take one step and report its outcome; return whether the API server answered."""
        try:
            self._report(self.step())
        except (errors.Conflict, errors.AlreadyExists):
            self._report("")  # another candidate was faster
        except errors.ClusterError as error:
            self._report(str(error))
            return False
        except Exception as error:
            # Without this thread, this process would never lead again, and no log would say so.
            reason = f"{type(error).__name__}: {error}"
            if self.failing != reason:
                log.exception("leader election: an unforeseen error")
            self.failing = reason
        return True

    def _report(self, failing: str) -> None:
        if failing and failing != self.failing:
            log.warning("not leading: %s" if not self.leading else "leader election: %s", failing)
        self.failing = failing

    def _read(self) -> Manifest:
        try:
            return self._cluster.get(LEASES, LEASE, self._config.namespace)
        except errors.NotFound:
            return self._cluster.create(LEASES, LEASES.manifest({"name": LEASE}, spec={}), self._config.namespace)

    def _write(self, lease: Manifest, epoch: int) -> None:
        spec = _spec(lease)
        changes: dict[str, Any] = {
            "holderIdentity": self._config.identity,
            "leaseDurationSeconds": max(1, round(self._config.lease_seconds)),
            "renewTime": timestamps.format_micro_time(time.time()),
        }
        if spec.get("holderIdentity") != self._config.identity:
            changes["acquireTime"] = changes["renewTime"]
            changes["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1
        notes = {
            EPOCH_ANNOTATION: str(epoch),
            API_ANNOTATION: self.address or None,
            SERVICE_ANNOTATION: self.service or None,
            VERSION_ANNOTATION: release.version() or None,
            LAYOUT_ANNOTATION: str(redis_keys.OWN_LAYOUT),
            ERRORS_ANNOTATION: self._skipped() or None,
        }
        patch = {"metadata": {"annotations": notes}, "spec": changes}
        version = lease["metadata"]["resourceVersion"]
        self._cluster.patch(LEASES, LEASE, patch, self._config.namespace, resource_version=version)
        self._observed = ObservedLease(self._config.identity, changes["renewTime"], self._clock())
        self._epoch = epoch

    def _release(self) -> None:
        try:
            lease = self._read()
            if _spec(lease).get("holderIdentity") == self._config.identity:
                version = lease["metadata"]["resourceVersion"]
                patch = {"spec": {"holderIdentity": ""}}
                self._cluster.patch(LEASES, LEASE, patch, self._config.namespace, resource_version=version)
        except errors.ClusterError as error:
            log.info("the Lease was not handed back, so the next leader waits until it expires: %s", error)


def _spec(lease: Manifest) -> dict[str, Any]:
    return lease.get("spec") or {}


def _epoch(lease: Manifest) -> int:
    """Return the epoch on the Lease; 0 for a value that is not a number.

    The 0 is safe, because a rebuild requests an epoch above all epochs that it knows.
    """
    text = str((lease["metadata"].get("annotations") or {}).get(EPOCH_ANNOTATION, ""))
    return integers.parse(text, 0)
