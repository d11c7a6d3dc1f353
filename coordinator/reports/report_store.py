"""The store of reports: the last one of each pod, in Redis alone.

One rule: reports may be lost at any moment without harm. Reports expire, nothing rebuilds them, and whoever judges by
them begins to wait anew when they are gone.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import orjson

from coordinator.reports.report_values import ArrivedReport, JobReports, PodReport, Progress
from crds.keys import JobKey
from queues.chunks import chunks
from queues.redis.connection import Connection, translate_parse_errors
from queues.redis.scripts import Script

KEPT_SECONDS = 86_400
"""How long the reports of a job outlive the last of them: longer than any wait for the next step should be."""
REPORTS_PER_CALL = 500
"""The most reports for one call of a script. Other clients of Redis wait meanwhile, a few milliseconds."""
JOBS_PER_CALL = 50
_KEEP = Script("reports/keep", preludes=("lib/clock",))
_READ = Script("reports/read", preludes=("lib/clock",))


class ReportReader(Protocol):
    """The interface for code that judges and shows reports."""

    def read(self, keys: Iterable[JobKey]) -> dict[JobKey, JobReports]:
        """Return the reports of the jobs that have reports. The reports may include pods that are gone. Raises
        QueueError."""


class ReportStore(ReportReader, Protocol):
    """The store with the side of the coordinators that take reports."""

    def keep(self, arrived: Iterable[ArrivedReport]) -> None:
        """Keep reports, each in place of the last report of its pod. Raises QueueError."""


class RedisReports:
    """A ReportStore over one connection; safe to share between threads."""

    def __init__(self, connection: Connection, clock: Callable[[], float] | None = None) -> None:
        """`clock` returns seconds since 1970 and is for tests; the default is the server's time."""
        self._connection = connection
        self._clock = clock

    def keep(self, arrived: Iterable[ArrivedReport]) -> None:
        """See ReportStore."""
        for chunk in chunks(arrived, REPORTS_PER_CALL):
            fields = itertools.chain.from_iterable(map(_fields, chunk))
            _KEEP(self._connection, arguments=[self._now(), KEPT_SECONDS, *fields])

    def read(self, keys: Iterable[JobKey]) -> dict[JobKey, JobReports]:
        """See ReportReader."""
        found: dict[JobKey, JobReports] = {}
        for chunk in chunks(keys, JOBS_PER_CALL):
            found.update(self._read(chunk))
        return found

    def _read(self, keys: Sequence[JobKey]) -> Iterator[tuple[JobKey, JobReports]]:
        now, *jobs = _READ(self._connection, arguments=[self._now(), *map(str, keys)])
        with translate_parse_errors(self._connection):
            for key, flat in zip(keys, jobs, strict=True):
                if flat:
                    pods = zip(flat[::2], flat[1::2], strict=True)
                    reports = {pod.decode(): _parse(record) for pod, record in pods}
                    yield key, JobReports(read_at=float(now), pods=reports)

    def _now(self) -> str:
        return repr(self._clock()) if self._clock else ""


def _fields(arrived: ArrivedReport) -> tuple[str | bytes | int | float, ...]:
    report = arrived.report
    rest: dict[str, Any] = {
        "samples": report.samples_per_second,
        "loss": report.loss,
        "gauges": dict(report.gauges) or None,
        "progress": None if report.progress is None else asdict(report.progress),
        "run": report.run or None,
    }
    text = orjson.dumps({name: value for name, value in rest.items() if value is not None})
    step = "" if report.step is None else report.step
    return str(arrived.job), report.pod, arrived.age, step, report.checkpoint or 0, text


def _parse(record: bytes) -> PodReport:
    step, at, moved, rate, checkpoint, text = record.split(b" ", 5)
    rest: dict[str, Any] = orjson.loads(text)
    return PodReport(
        step=int(step),
        at=float(at),
        moved_at=float(moved),
        steps_per_second=None if rate == b"-" else float(rate),
        samples_per_second=rest.get("samples"),
        loss=rest.get("loss"),
        gauges=rest.get("gauges", {}),
        checkpoint=int(checkpoint) or None,
        progress=_parse_progress(rest["progress"]) if "progress" in rest else None,
        run=rest.get("run", ""),
    )


def _parse_progress(progress: dict[str, Any]) -> Progress:
    """Return the progress in a record, which a newer version may have written."""
    return Progress(
        percent=progress["percent"], remaining_seconds=progress["remaining_seconds"], steps=progress["steps"]
    )
