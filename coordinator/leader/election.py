"""One coordinator leads: a Lease in the cluster, with the epoch that fences everybody else off.

One rule: a leader trusts its own clock only, and stops leading by itself before anybody else may start.

The holder renews every `renew_seconds`; a candidate that has seen the Lease unchanged for `lease_seconds` on its own
clock takes it (as Kubernetes' leader election does: the clocks of two machines are never compared). That clock neither
jumps nor stands still while the machine sleeps. Every term raises the epoch, kept in an annotation of the Lease, so
that it rises even if Redis has forgotten everything.

Who cannot do a leader's work does not hold the Lease: a candidate that is not fit does not take it, and a leader that
has not been fit for `lease_seconds` hands it back. If nobody is fit, nobody leads, and nothing flaps.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from coordinator.errors import LeadershipLost
from coordinator.leader import rebuild_request
from coordinator.rbac.permissions import LEASE
from crds import integers
from crds.api_resources import LEASES
from crds.labels import GROUP
from kube import errors
from kube.api import Cluster, Manifest

EPOCH = f"{GROUP}/epoch"
API = f"{GROUP}/api"
"""Annotation of the Lease: the URL at which the leader answers questions about the queues, if it does."""
ERRORS = f"{GROUP}/object-errors"
"""Annotation of the Lease: the objects that the leader has skipped after unforeseen errors, as `torchq doctor` shows
them."""
MARGIN = 16
"""A leader stops this fraction of a lease before anybody else may start: what it has begun by then is over."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
log = logging.getLogger(__name__)


def elapsed() -> float:
    """Seconds on a clock that nobody sets and that runs while the machine sleeps (on Linux)."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True)
class Observed:
    """The Lease as last seen to change, and when that was on our own clock."""

    holder: str
    renewed: str
    at: float

    def updated(self, holder: str, renewed: str, now: float) -> "Observed":
        """The clock of an unchanged Lease runs on."""
        return self if (holder, renewed) == (self.holder, self.renewed) else Observed(holder, renewed, now)


def may_take(observed: Observed, identity: str, lease_seconds: float, now: float) -> bool:
    """Whether the Lease is ours, free, or has been silent for too long."""
    return observed.holder in ("", identity) or now - observed.at > lease_seconds


class Leadership:
    """Competes for the Lease in a thread of its own until stopped.

    `cluster` must give up on a request well within a lease; `skipped` names the objects that this process has skipped
    after errors; `unfit` says why this process could not do a leader's work
    now (empty: it could), and must not take long either.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        identity: str,
        namespace: str,
        lease_seconds: float,
        renew_seconds: float,
        unfit: Callable[[], str] = str,
        skipped: Callable[[], str] = str,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        self._cluster = cluster
        self._identity = identity
        self._namespace = namespace
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._unfit = unfit
        self._skipped = skipped
        self._clock = clock
        self._fit_at = clock()
        self._observed = Observed("", "", clock())
        self._valid_until = float("-inf")
        self._epoch = 0
        self._asked = ""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._compete, name="leadership")
        self.failing = ""
        self.address = ""
        """Where this process answers questions about the queues; empty: nowhere that others could name."""

    @property
    def leading(self) -> bool:
        """Whether this process leads at this moment."""
        return self._clock() < self._valid_until

    @property
    def identity(self) -> str:
        """Our own name."""
        return self._identity

    @property
    def epoch(self) -> int:
        """The epoch of our term."""
        return self._epoch

    @property
    def holder(self) -> str:
        """Who leads, as last seen."""
        return self._observed.holder

    @property
    def asked(self) -> str:
        """The word of a repair that somebody asked for and nobody has done, as last seen; empty if there is none."""
        return self._asked

    def answer(self, word: str) -> None:
        """Say that the repair of this word is done. LeadershipLost if we lead no longer."""
        with self._lock:
            if not self.leading or _spec(self._read()).get("holderIdentity") != self._identity:
                raise LeadershipLost("another coordinator leads")
            self._cluster.patch(
                LEASES, LEASE, {"metadata": {"annotations": {rebuild_request.DONE: word}}}, self._namespace
            )
            self._asked = ""

    def start(self) -> None:
        """Begin to compete."""
        self._thread.start()

    def stop(self) -> None:
        """Stop competing; a leader hands the Lease back, so that the next one need not wait for it to run out."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.leading:
            self._step_down()

    def raise_epoch(self, above: int = 0) -> int:
        """A higher epoch for a rebuild, also higher than `above`. LeadershipLost if we lead no longer."""
        with self._lock:
            lease = self._read()
            if not self.leading or _spec(lease).get("holderIdentity") != self._identity:
                raise LeadershipLost("another coordinator leads")
            self._write(lease, max(_epoch(lease), above) + 1)
            return self._epoch

    def step(self) -> str:
        """Try once to take or to keep the Lease; why we do not compete for it, empty if we do."""
        with self._lock:
            started = self._clock()
            lease = self._read()
            self._asked = rebuild_request.asked(lease)
            spec = _spec(lease)
            self._observed = self._observed.updated(
                spec.get("holderIdentity") or "", spec.get("renewTime") or "", started
            )
            if not may_take(self._observed, self._identity, self._lease_seconds, started):
                self._valid_until = float("-inf")
                return ""
            new_term = not self.leading
            unfit = self._long_unfit(new_term)
            if unfit:
                if not new_term:
                    self._step_down()
                return unfit
            self._write(lease, _epoch(lease) + 1 if new_term else _epoch(lease))
            self._valid_until = started + self._lease_seconds * (1 - 1 / MARGIN)
            return ""

    def _long_unfit(self, new_term: bool) -> str:
        """Why the Lease is not for us: at once for a candidate, after a whole lease for a leader."""
        unfit, now = self._unfit(), self._clock()
        if not unfit:
            self._fit_at = now
        return unfit if new_term or now - self._fit_at > self._lease_seconds else ""

    def _step_down(self) -> None:
        self._valid_until = float("-inf")
        self._release()

    def _compete(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(self._renew_seconds if self._try() else self._renew_seconds / 4)

    def _try(self) -> bool:
        """One step, and what to tell about it; whether an answer came."""
        try:
            self._tell(self.step())
        except (errors.Conflict, errors.AlreadyExists):
            self._tell("")  # another candidate was faster
        except errors.ClusterError as error:
            self._tell(str(error))
            return False
        except Exception as error:
            # Without this thread nobody would ever lead again, and nobody would know.
            what = f"{type(error).__name__}: {error}"
            if self.failing != what:
                log.exception("leadership: an unforeseen error")
            self.failing = what
        return True

    def _tell(self, failing: str) -> None:
        if failing and failing != self.failing:
            log.warning("not leading: %s" if not self.leading else "leadership: %s", failing)
        self.failing = failing

    def _read(self) -> Manifest:
        try:
            return self._cluster.get(LEASES, LEASE, self._namespace)
        except errors.NotFound:
            body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": LEASE}, "spec": {}}
            return self._cluster.create(LEASES, body, self._namespace)

    def _write(self, lease: Manifest, epoch: int) -> None:
        spec = _spec(lease)
        changes: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._lease_seconds)),
            "renewTime": _micro_time(),
        }
        if spec.get("holderIdentity") != self._identity:
            changes["acquireTime"] = changes["renewTime"]
            changes["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1
        notes = {EPOCH: str(epoch), API: self.address or None, ERRORS: self._skipped() or None}
        patch = {"metadata": {"annotations": notes}, "spec": changes}
        version = lease["metadata"]["resourceVersion"]
        self._cluster.patch(LEASES, LEASE, patch, self._namespace, resource_version=version)
        self._observed = Observed(self._identity, changes["renewTime"], self._clock())
        self._epoch = epoch

    def _release(self) -> None:
        try:
            lease = self._read()
            if _spec(lease).get("holderIdentity") == self._identity:
                version = lease["metadata"]["resourceVersion"]
                patch = {"spec": {"holderIdentity": ""}}
                self._cluster.patch(LEASES, LEASE, patch, self._namespace, resource_version=version)
        except errors.ClusterError as error:
            log.info("the lease was not handed back (%s); the next leader waits for it to run out", error)


def _spec(lease: Manifest) -> dict[str, Any]:
    return lease.get("spec") or {}


def _epoch(lease: Manifest) -> int:
    """0 for what is no number: the rebuild asks for one above all that it knows of."""
    text = str((lease["metadata"].get("annotations") or {}).get(EPOCH, ""))
    return integers.bounded(text, 0)


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
