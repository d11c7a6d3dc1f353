"""A class of RQ jobs that can only be batches of leased keys.

One rule: nothing that a record names is imported. RQ's own class runs any function that a record names, `os.system`
included, and its callbacks and webhooks. This class runs one function, which is bound when the process starts.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rq.exceptions import NoSuchJobError
from rq.job import Job

from queues import redis_keys
from queues.inspection import rq_record
from queues.inspection.rq_record import FUNCTION, InvalidBatch
from queues.redis.scripts import Script
from queues.work import Lease

QUEUE = redis_keys.RQ_QUEUE
__all__ = ["FUNCTION", "QUEUE", "BatchJob", "InvalidBatch", "bind"]

log = logging.getLogger(__name__)
_RECORD = Script("work/record")


class BatchJob(Job):  # type: ignore[misc]
    """An RQ job that is a batch of leases. `bind` makes the class that a worker uses."""

    run: Callable[[Sequence[Lease]], None]

    @classmethod
    def fetch(cls, id: str, connection: Any = None, serializer: Any = None) -> "BatchJob":
        """Read a job. Raises NoSuchJobError, which makes RQ skip the job, if there is no such job or its record is
        invalid. An invalid record is deleted."""
        if not rq_record.is_id(id):
            log.warning("refused: RQ job %s: not the id of a job", rq_record.shorten(id))
            raise NoSuchJobError("not the id of a job")
        job = cls(id, connection=connection, serializer=serializer)
        try:
            job.refresh()
        except InvalidBatch as error:
            log.warning("refused and removed: RQ job %s: %s", id, error)
            job.connection.delete(job.key, f"{redis_keys.RQ_RESULTS}{id}")
            raise NoSuchJobError(str(error)) from error
        return job

    def refresh(self) -> None:
        """Read the record: first its length, then only the fields in `rq_record.FIELDS`. Raises InvalidBatch for an
        invalid record, NoSuchJobError for a missing one."""
        length, *rest = _RECORD(self.connection, arguments=[self.key, rq_record.MOST_BYTES, *rq_record.FIELDS])
        rq_record.check_length(length)
        [values] = rest
        record = {
            name.encode(): value for name, value in zip(rq_record.FIELDS, values, strict=True) if value is not None
        }
        if not record:
            raise NoSuchJobError(f"no such job: {self.id}")
        self.restore(record)

    def restore(self, raw_data: Mapping[bytes, bytes]) -> None:
        """Set the job's fields from a record. Raises InvalidBatch for a broken record. The queue of the job and its
        retention time do not come from the record."""
        try:
            super().restore({**raw_data, b"data": rq_record.decompress(raw_data[b"data"])})
            rq_record.check_times(self.timeout, self.result_ttl, self.failure_ttl)
        except InvalidBatch:
            raise
        except Exception as error:  # the record may hold any data, and RQ may fail on it in any way
            raise InvalidBatch(f"its record is broken ({type(error).__name__})") from error
        self.origin = QUEUE
        self.failure_ttl: int = min(self.failure_ttl or rq_record.KEPT_SECONDS, rq_record.KEPT_SECONDS)

    @property
    def func(self) -> Callable[..., None]:
        """The function that RQ calls with the record's arguments. Raises InvalidBatch unless the record is a batch."""
        if self.func_name != FUNCTION or self.instance is not None or self.kwargs:
            raise InvalidBatch(f"it names {rq_record.shorten(self.func_name)}; workers run only {FUNCTION}")
        if not isinstance(self.args, list) or len(self.args) != 1:
            raise InvalidBatch("not a batch of keys")
        return self._run_batch

    def batch(self) -> list[Lease]:
        """Return the leases of the record. Raises InvalidBatch unless the record is a batch."""
        _ = self.func
        return rq_record.parse_leases(self.args[0])

    def _run_batch(self, batch: object) -> None:
        type(self).run(rq_record.parse_leases(batch))


def bind(run: Callable[[Sequence[Lease]], None]) -> type[BatchJob]:
    """Return the job class of one process. Its only function is `run`."""
    return type("BoundBatchJob", (BatchJob,), {"run": staticmethod(run)})
