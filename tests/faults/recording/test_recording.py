"""Recorders with faults, against one that sees everything: the same rows, but for what is marked."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from history.precedence import Key
from history.rows import GapRow, HoldRow, JobRow, PodRow, QueueRow, Row, WaitRow
from history.store import JobQuery, Span
from tests.faults.recording.story import Story
from tests.support.coordinator.recording import FailingHistory

SEEDS = 90


@pytest.mark.parametrize("first", range(0, SEEDS, 30))
def test_recorders_with_faults_write_what_one_writes_that_sees_everything(first: int) -> None:
    for seed in range(first, first + 30):
        story = Story(seed)
        story.run()
        assert [*story.broken, *Comparison(story).differences()] == [], f"seed {seed}"


class Comparison:
    """The rows of both at the end."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._whole, self._found = story.whole.kept.rows, story.store.kept.rows
        self._gaps = [row for row in self._found.values() if isinstance(row, GapRow)]
        self._merged = {row.uid for row in self._found.values() if isinstance(row, HoldRow) and row.numbers}
        """Jobs of which several holds together were seen; their sums are compared."""
        self._gaps.append(GapRow(start=0, end=story.begin))

    def differences(self) -> Iterator[str]:
        """Yield what is missing or wrong, and not marked."""
        for key, row in self._whole.items():
            found = self._found.get(key)
            match row:
                case JobRow():
                    yield from self._job(row, found)
                case HoldRow() | PodRow():
                    yield from self._time(row, found)
        for key, found in self._found.items():
            yield from self._invented(key, found)
        yield from self._weights()
        yield from (
            f"{uid} expired and is no more {end}" for uid, end in self._story.expired.items() if not self._has(uid, end)
        )

    def _job(self, row: JobRow, found: Row | None) -> Iterator[str]:
        if found is None:
            if not self._in_a_gap(row.created, row.ended):
                yield f"job {row.name} is missing: {row}"
        elif isinstance(found, JobRow) and found.is_approximate:
            if not self._is_excused(row.ended):
                yield f"the end of job {row.name} is guessed: {found}, not {row}"
        elif _bare(found) != _bare(row):
            yield f"job {row.name}: {found}, not {row}"
        elif self._total(self._story.whole, row.uid) != self._total(self._story.store, row.uid):
            yield f"what job {row.name} held adds up to something else"

    def _total(self, store: FailingHistory, uid: str) -> Counter[str]:
        """Return what a job held, amount x seconds."""
        total: Counter[str] = Counter()
        for record in store.kept.jobs(JobQuery(uid=uid)):
            for hold in record.holds:
                end = self._story.cluster.seconds if hold.end is None else hold.end
                total.update(
                    hold.seconds or {name: amount * (end - hold.start) for name, amount in hold.charge.items()}
                )
        return total

    def _time(self, row: HoldRow | PodRow, found: Row | None) -> Iterator[str]:
        if isinstance(row, HoldRow) and row.uid in self._merged:
            return
        if found is None:
            if not self._in_a_gap(row.start, row.end) and not self._is_of_unseen_end(row):
                yield f"missing: {row}"
        elif isinstance(found, HoldRow | PodRow) and found.is_approximate:
            if not self._is_excused(row.end):
                yield f"the end is guessed: {found}, not {row}"
        elif _bare(found) != _bare(row) and not self._is_of_unseen_end(row):
            yield f"{found}, not {row}"

    def _is_of_unseen_end(self, row: HoldRow | PodRow) -> bool:
        """Return whether the job of a hold is marked, or a pod is charged from an end of its job on that may not have
        been seen."""
        if isinstance(row, PodRow):
            return self._is_excused(row.start)
        job = self._found.get(("JobRow", row.uid))
        return isinstance(job, JobRow) and job.is_approximate

    def _invented(self, key: Key, found: Row) -> Iterator[str]:
        is_merged = isinstance(found, HoldRow) and found.uid in self._merged
        if isinstance(found, JobRow | WaitRow | HoldRow) and key not in self._whole and not is_merged:
            yield f"nobody else has seen {found}"
        if isinstance(found, PodRow) and key not in self._whole and found.start != found.end:
            is_marked = found.is_approximate or self._in_a_gap(found.start, found.start)
            if not is_marked and not self._in_a_gap(found.end, found.end):
                yield f"nobody else has seen {found}"

    def _weights(self) -> Iterator[str]:
        now = self._story.cluster.seconds
        whole, found = (
            [(row.name, row.weight) for row in store.kept.queues(Span(now, now + 1))]
            for store in (self._story.whole, self._story.store)
        )
        if whole != found:
            yield f"weights {found}, not {whole}"

    def _in_a_gap(self, start: int | None, end: int | None) -> bool:
        """Return whether a time lies in a gap. A gap begins a second early: an event may have been on its way."""
        return any(
            start is not None and end is not None and gap.start - 1 <= start and end <= gap.end + 1
            for gap in self._gaps
        )

    def _is_excused(self, end: int | None) -> bool:
        """Return whether a recorder may not have seen when something ended."""
        is_troubled = any(end is not None and each.start <= end <= each.end for each in self._story.troubled)
        return is_troubled or self._in_a_gap(end, end)

    def _has(self, uid: str, end: str) -> bool:
        row: Any = self._found.get(("JobRow", uid))
        return row is not None and row.outcome == end and not row.is_approximate


def _bare(row: Row) -> Row:
    """Return a row without what tells when it was seen."""
    without: dict[str, Any] = {"seen": 0} if isinstance(row, JobRow) else {}
    return replace(row, version=0, **without) if not isinstance(row, QueueRow) else row
