"""How far the history is recorded, as a worker sees it: it deletes no expired job whose end is not in the history yet.

One rule: a cluster without a recorder costs a worker one request in RECORDING_SECONDS, and no wait.
"""

import logging
import threading
import time
from collections.abc import Callable

from coordinator.rbac.permissions import RECORDER_LEASE
from crds import integers, timestamps
from crds.api_resources import LEASES
from crds.labels import RECORDED_VERSION
from kube import errors
from kube.api import Cluster
from reconcilers.plan.ending import RECORDING_SECONDS
from reconcilers.values import Recording

log = logging.getLogger(__name__)


class RecordingReader:
    """How far the history is recorded, for the workers of one process. Any thread may call the object."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        ahead: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`namespace` is that of the Lease, `ahead` says by how much the clock of this machine is ahead of the API
        server's."""
        self._cluster = cluster
        self._namespace = namespace
        self._ahead = ahead
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: Recording | None = None
        self._is_refused = False
        self._until = float("-inf")

    def __call__(self) -> Recording | None:
        """Return how far the history is recorded; None if no recorder has ever said so. The answer is read again after
        RECORDING_SECONDS. Raises ClusterError."""
        with self._lock:
            if self._clock() >= self._until:
                self._kept = self._read()
                self._until = self._clock() + RECORDING_SECONDS
            return self._kept

    def _read(self) -> Recording | None:
        try:
            lease = self._cluster.get(LEASES, RECORDER_LEASE, self._namespace)
        except errors.NotFound:
            return None
        except errors.Forbidden as error:  # the role of an older version
            if not self._is_refused:
                log.warning("jobs are deleted without a look at the history: %s", error)
            self._is_refused = True
            return None
        renewed = timestamps.seconds_or_none((lease.get("spec") or {}).get("renewTime"))
        if renewed is None:
            return None
        version = (lease["metadata"].get("annotations") or {}).get(RECORDED_VERSION)
        return Recording(integers.parse(version, 0), renewed + self._ahead())
