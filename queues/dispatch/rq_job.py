"""RQ jobs that can only be batches of leased keys.

One rule: nothing in a job's record is looked up or imported. RQ's own class runs any function a record names,
`os.system` included, and its callbacks and webhooks; this one knows a single name, bound when the process starts.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rq.exceptions import NoSuchJobError
from rq.job import Job

from queues import redis_keys
from queues.inspection import rq_record
from queues.inspection.rq_record import FUNCTION, Refused
from queues.redis.scripts import Script
from queues.work import Lease

QUEUE = redis_keys.RQ_QUEUE
__all__ = ["FUNCTION", "QUEUE", "BatchJob", "Refused", "bound"]

log = logging.getLogger(__name__)
_RECORD = Script("work/record")


class BatchJob(Job):  # type: ignore[misc]
    """A job as RQ keeps it, restricted to batches. `bound` makes the class that a worker uses."""

    run: Callable[[Sequence[Lease]], None]

    @classmethod
    def fetch(cls, id: str, connection: Any = None, serializer: Any = None) -> "BatchJob":
        """Read a job. NoSuchJobError, which makes RQ skip it, if there is none, or if its record is not even a job's
        or longer than any of ours: then it is removed."""
        if not rq_record.is_id(id):
            log.warning("refused: RQ job %s: not the id of a job", rq_record.short(id))
            raise NoSuchJobError("not the id of a job")
        job = cls(id, connection=connection, serializer=serializer)
        try:
            job.refresh()
        except Refused as refusal:
            log.warning("refused and removed: RQ job %s: %s", id, refusal)
            job.connection.delete(job.key, f"{redis_keys.RQ_RESULTS}{id}")
            raise NoSuchJobError(str(refusal)) from refusal
        return job

    def refresh(self) -> None:
        """Read the record: only the fields we know, and none before their length is known. Refused as `fetch` says."""
        length, *found = _RECORD(self.connection, arguments=[self.key, rq_record.MOST_BYTES, *rq_record.FIELDS])
        rq_record.check_length(length)
        [values] = found
        record = {
            name.encode(): value for name, value in zip(rq_record.FIELDS, values, strict=True) if value is not None
        }
        if not record:
            raise NoSuchJobError(f"no such job: {self.id}")
        self.restore(record)

    def restore(self, raw_data: Mapping[bytes, bytes]) -> None:
        """Take a record in. Refused if it is broken. Where it belongs and how long it is kept is not its to say."""
        try:
            super().restore({**raw_data, b"data": rq_record.unpacked(raw_data[b"data"])})
            rq_record.check_times(self.timeout, self.result_ttl, self.failure_ttl)
        except Refused:
            raise
        except Exception as error:  # whatever somebody wrote there
            raise Refused(f"its record is broken ({type(error).__name__})") from error
        self.origin = QUEUE
        self.failure_ttl: int = min(self.failure_ttl or rq_record.KEPT_SECONDS, rq_record.KEPT_SECONDS)

    @property
    def func(self) -> Callable[..., None]:
        """What RQ calls with the record's arguments. Refused for anything but a batch."""
        if self.func_name != FUNCTION or self.instance is not None or self.kwargs:
            raise Refused(f"it names {rq_record.short(self.func_name)}; workers run {FUNCTION} and nothing else")
        if not isinstance(self.args, list) or len(self.args) != 1:
            raise Refused("not a batch of keys")
        return self._run_batch

    def batch(self) -> list[Lease]:
        """What the record asks for. Refused unless it is a batch."""
        _ = self.func
        return rq_record.leases(self.args[0])

    def _run_batch(self, batch: object) -> None:
        type(self).run(rq_record.leases(batch))


def bound(run: Callable[[Sequence[Lease]], None]) -> type[BatchJob]:
    """The job class of one process, whose only function is `run`."""
    return type("BoundBatchJob", (BatchJob,), {"run": staticmethod(run)})
