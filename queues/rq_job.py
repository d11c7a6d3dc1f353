"""RQ jobs that can only be batches of leased keys.

One rule: nothing in a job's record is looked up or imported. RQ's own class runs any function a record names,
`os.system` included, and its callbacks and webhooks; this one knows a single name, bound when the process starts.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rq.exceptions import NoSuchJobError
from rq.job import Job

from crds.keys import JobKey
from queues.work import Lease

QUEUE = "torchq"
FUNCTION = "torchq.reconcile"
"""The name in every record that queues/lua/work_dispatch.lua writes."""

_KNOWN = frozenset(
    (
        *("data", "origin", "status", "description", "timeout", "result_ttl", "failure_ttl", "worker_name"),
        *("created_at", "enqueued_at", "started_at", "ended_at", "last_heartbeat"),
    )
)
"""Fields that are read back. Not among them: callbacks, webhooks, dependencies, retries, repeats, meta."""

log = logging.getLogger(__name__)


class Refused(Exception):
    """The job is not a batch of ours; it is not run."""


class BatchJob(Job):  # type: ignore[misc]
    """A job as RQ keeps it, restricted to batches. `bound` makes the class that a worker uses."""

    run: Callable[[Sequence[Lease]], None]

    def restore(self, raw_data: Mapping[bytes, bytes]) -> None:
        """Read a record; NoSuchJobError for one that is not even a job, which makes RQ skip it."""
        known = {name: value for name, value in raw_data.items() if name.decode(errors="replace") in _KNOWN}
        try:
            super().restore(known)
        except Exception as error:  # whatever somebody wrote there
            log.warning("skipped the RQ job %s, whose record is broken: %s", self.id, error)
            raise NoSuchJobError(f"broken record: {self.id}") from error

    @property
    def func(self) -> Callable[[object], None]:
        """What RQ calls with the record's arguments. Refused for anything but a batch."""
        if self.func_name != FUNCTION or self.instance is not None or self.kwargs:
            raise Refused(f"RQ job {self.id} names {self.func_name!r}; workers run {FUNCTION} and nothing else")
        return self._run_batch

    def _run_batch(self, batch: object) -> None:
        type(self).run(leases(batch))


def bound(run: Callable[[Sequence[Lease]], None]) -> type[BatchJob]:
    """The job class of one process, whose only function is `run`."""
    return type("BoundBatchJob", (BatchJob,), {"run": staticmethod(run)})


def leases(batch: Any) -> list[Lease]:
    """The leases in a record's argument, JSON [[key, token], ...]. Refused for anything else."""
    try:
        return [(JobKey.parse(key), str(token)) for key, token in batch]
    except (AttributeError, TypeError, ValueError) as error:
        raise Refused(f"not a batch of keys: {error}") from error
