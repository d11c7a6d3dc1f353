"""What happened while nobody looked: after a start, and after a watch that the API server could not go on with.

One rule: nothing is guessed in silence. What is gone is marked, and the time that nobody saw is a row of its own.
"""

from collections.abc import Iterator
from dataclasses import replace

from coordinator.recorder.sights import Sights, View
from history.rows import GapRow, QueueRow, Row
from history.sightings import jobs as job_sights
from history.sightings import pods as pod_sights
from history.sightings import queues as queue_sights
from history.store import HistoryStore, JobQuery, Span


def rows(store: HistoryStore, sights: Sights, since: int, before: int) -> list[Row]:
    """Return the rows of an absence that ended with lists at the time `since`: the gap, the queues that have changed,
    and the ends of what is gone. Everything was recorded up to the time `before`."""
    gap: list[Row] = [GapRow(start=before, end=since)] if 0 < before < since else []
    return [*gap, *_queues(store, sights, since), *gone(store, sights, since, min(before, since))]


def gone(store: HistoryStore, sights: Sights, since: int, until: int = 0) -> list[Row]:
    """Return the ends of the jobs, holds and pods of the store that do not exist any more. All that exists is in the
    store already. They are charged to the time `until`, and to the last sight of them at least."""
    return [*_jobs(store, sights, since, until), *_pods(store, sights, until)]


def pod_rows(store: HistoryStore, sights: Sights, before: int) -> list[Row]:
    """Return the rows of pods whose job is gone. Call it once the store has the ends of these jobs. A pod of a job that
    no recorder has seen is charged since the time `before`, up to which everything was recorded."""
    present = {str(job["metadata"].get("uid")) for job in sights.jobs.values()}
    owners = {str(pod[pod_sights.JOB]) for pod in sights.pods.values()} - present
    found: list[Row] = []
    for uid in sorted(each for each in owners if each and sights.ended_at(each) is None):
        ended = next((record.job.ended for record in store.jobs(JobQuery(uid=uid, limit=1))), None)
        found += sights.file_pods(uid, before if ended is None else ended)
    return found


def _jobs(store: HistoryStore, sights: Sights, since: int, until: int) -> Iterator[Row]:
    version = sights.jobs.told_version
    opened = store.open_jobs()
    present = {_filed_uid(job): job for job in sights.jobs.values()}
    for each in opened:
        job = present.get(each.row.uid)
        if job is not None:
            yield from job_sights.of_ended_holds(each, job, since) if each.holds else ()
        elif each.row.version <= version or each.row.seen < since:  # else another recorder is ahead of this one's watch
            yield from job_sights.of_lost_job(each, until)


def _pods(store: HistoryStore, sights: Sights, until: int) -> Iterator[Row]:
    version = sights.pods.told_version
    opened = store.open_pods()
    present = {str(pod["metadata"].get("uid")) for pod in sights.pods.values()}
    for row in opened:
        if row.uid in present:
            sights.note_open_pod(row.uid)
        elif row.version <= version:  # else another recorder is ahead of this one's watch
            yield replace(row, end=max(row.start, until), is_approximate=True)


def _queues(store: HistoryStore, sights: Sights, since: int) -> Iterator[Row]:
    known = {row.name: row for row in store.queues(Span(since, since + 1))}
    for queue in sights.queues.values():
        row, last = queue_sights.of_queue(queue, since), known.pop(queue["metadata"]["name"], None)
        if last is None or last.weight != row.weight:
            yield row
    yield from (_deleted(row, since) for row in known.values() if row.weight)


def _deleted(row: QueueRow, since: int) -> QueueRow:
    return replace(row, start=max(row.start, since), weight=0, version=row.version + 1)


def _filed_uid(job: View) -> str:
    """Return the uid under which a job is in the history: a restored job has its first one."""
    restored = job["status"].get("restoredFrom")
    first = restored.get("uid") if isinstance(restored, dict) else None
    return str(first or job["metadata"].get("uid"))
