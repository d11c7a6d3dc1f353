"""What a recorder writes: sights, absences, the Lease, and a database that is away."""

import copy
import logging
import threading
from typing import Any, TypeVar

import pytest

from coordinator.recorder import recorder as recorder_module
from coordinator.recorder.pending_rows import PendingRows
from coordinator.recorder.recorder import PoolReader
from crds import timestamps
from crds.api_resources import LEASES, PODS, TENANT_QUEUES
from crds.labels import RECORDED_UNTIL, RECORDED_VERSION
from history.errors import HistoryError, WrongSchema
from history.rows import GapRow, JobRow, PodRow, PoolRow, QueueRow
from history.store import JobQuery, JobRecord, Span
from kube.api import Manifest
from kube.errors import ClusterError
from kube.process.turns import Turns
from tests.support.clock import START, Clock
from tests.support.coordinator.recording import FailingHistory, RecordedCluster, RecorderProcess

T = TypeVar("T")
NOON = int(START)


@pytest.fixture
def recorded() -> RecordedCluster:
    return RecordedCluster()


@pytest.fixture
def store() -> FailingHistory:
    return FailingHistory()


@pytest.fixture
def process(recorded: RecordedCluster, store: FailingHistory) -> RecorderProcess:
    return started(recorded, store)


def started(recorded: RecordedCluster, store: FailingHistory, name: str = "a", **options: Any) -> RecorderProcess:
    """Return a recorder that has read the cluster and holds the Lease, if it is free."""
    process = RecorderProcess(recorded, store, name, **options)
    process.list()
    process.step()
    return process


def rows(store: FailingHistory, kind: type[T]) -> list[T]:
    return [row for row in store.kept.rows.values() if isinstance(row, kind)]


def record(store: FailingHistory, name: str) -> JobRecord:
    (found,) = store.kept.jobs(JobQuery(name=name))
    return found


def lease(recorded: RecordedCluster) -> Manifest:
    return recorded.client.get(LEASES, "torchq-recorder", "kube-system")


def version(cluster: RecordedCluster) -> int:
    return int(lease(cluster)["metadata"]["annotations"][RECORDED_VERSION])


def holder(recorded: RecordedCluster) -> str:
    return str(lease(recorded)["spec"]["holderIdentity"])


class TestSights:
    def test_job_that_is_suspended_and_deleted_has_its_holds(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        recorded.submit("digits")
        process.step(10)
        recorded.admit("digits")
        process.step(60)
        recorded.suspend("digits")
        process.step(30)
        recorded.admit("digits", attempt=2)
        process.step(100)
        recorded.delete("digits")
        process.step(5)
        found = record(store, "digits")
        assert (found.job.outcome, found.job.ended, found.job.is_approximate) == ("Deleted", NOON + 200, False)
        assert [(hold.start - NOON, (hold.end or 0) - NOON, hold.ended) for hold in found.holds] == [
            (10, 70, "Suspended"),
            (100, 200, "Deleted"),
        ]

    def test_pod_that_outlives_its_job_is_charged_to_its_end(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        uid = recorded.submit("digits")
        recorded.admit("digits")
        recorded.make_pod("digits-worker-0", "digits", uid)
        recorded.make_pod("digits-worker-1", "digits", uid)
        process.step(10)
        assert rows(store, PodRow) == []
        recorded.delete("digits-worker-1", PODS)
        process.step(10)
        recorded.delete("digits")
        process.step(60)
        (pod,) = rows(store, PodRow)
        assert (pod.start - NOON, pod.end, pod.charge) == (20, None, {"cpu": 1000})
        recorded.delete("digits-worker-0", PODS)
        process.step()
        (pod,) = rows(store, PodRow)
        assert pod.end == NOON + 80

    def test_queue_has_a_row_per_weight(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        recorded.weigh("team", 2)
        process.step(10)
        recorded.client.patch(TENANT_QUEUES, "team", {"metadata": {"labels": {"floor": "2"}}})
        process.step(10)
        recorded.weigh("team", 5)
        process.step(10)
        recorded.delete("team", TENANT_QUEUES)
        process.step()
        expected = [(NOON, 2), (NOON + 20, 5), (NOON + 30, 0)]
        assert [(row.start, row.weight) for row in rows(store, QueueRow)] == expected

    def test_pool_is_written_when_it_changes(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        for amount in (8, 8, 16):
            process.recorder.note_pool({"nvidia.com/gpu": amount})
            process.step(10)
        process.step()
        again = started(recorded, store, "a")
        again.recorder.note_pool({"nvidia.com/gpu": 16})
        again.step(10)
        assert [(row.start - NOON, row.amounts) for row in rows(store, PoolRow)] == [
            (0, {"nvidia.com/gpu": 8}),
            (20, {"nvidia.com/gpu": 16}),
        ]


class TestAbsence:
    def test_first_start_is_no_gap(self, process: RecorderProcess, store: FailingHistory) -> None:
        process.step(10)
        assert rows(store, GapRow) == []

    def test_after_an_absence_what_is_gone_is_marked_and_what_is_there_completed(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        for name in ("gone", "there"):
            recorded.submit(name)
            recorded.admit(name)
        process.step(10)  # the recorder is killed here
        recorded.clock.step(90)
        recorded.delete("gone")
        recorded.finish("there")
        recorded.clock.step(100)
        again = started(recorded, store, "b")
        again.step(30)  # the Lease of the killed recorder has to expire
        again.step(10)
        assert holder(recorded) == "b"
        gone, there = record(store, "gone"), record(store, "there")
        until = NOON + 10 - 1
        assert (gone.job.outcome, gone.job.ended, gone.job.is_approximate) == ("Deleted", until, True)
        assert [(hold.end, hold.is_approximate) for hold in gone.holds] == [(until, True)]
        assert (there.job.outcome, there.job.ended, there.job.is_approximate) == ("Succeeded", NOON + 100, False)
        (gap,) = rows(store, GapRow)
        assert gap.start == until
        assert NOON + 200 - 1 <= gap.end <= NOON + 230

    def test_pod_that_went_during_an_absence_is_closed(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        uid = recorded.submit("digits")
        recorded.admit("digits")
        for number in (0, 1):
            recorded.make_pod(f"digits-worker-{number}", "digits", uid)
        process.step(10)
        recorded.delete("digits")
        process.step(10)
        process.stop()
        recorded.delete("digits-worker-0", PODS)
        recorded.clock.step(100)
        again = started(recorded, store, "b")
        again.step(10)
        closed, opened = sorted(rows(store, PodRow), key=lambda pod: pod.end is None)
        assert (closed.end, closed.is_approximate) == (NOON + 19, True)
        assert opened.end is None
        recorded.delete("digits-worker-1", PODS)
        again.step()
        assert {pod.end for pod in rows(store, PodRow)} == {NOON + 19, NOON + 130}

    def test_pods_of_a_job_that_was_deleted_during_an_absence_are_charged(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        uid = recorded.submit("digits")
        recorded.admit("digits")
        recorded.make_pod("digits-worker-0", "digits", uid)
        process.step(10)
        process.stop()
        recorded.delete("digits")
        recorded.clock.step(100)
        again = started(recorded, store, "b")
        recorded.clock.step(100)
        recorded.delete("digits-worker-0", PODS)
        again.step(10)
        (pod,) = rows(store, PodRow)
        assert (pod.start, pod.end) == (record(store, "digits").job.ended, NOON + 210)

    def test_watch_that_cannot_go_on_is_an_absence(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        recorded.submit("gone")
        process.step(10)
        recorded.clock.step(600)
        recorded.delete("gone")
        recorded.clock.step(600)
        process.list()
        process.step(10)
        job = record(store, "gone").job
        assert (job.outcome, job.ended, job.is_approximate) == ("Deleted", NOON + 9, True)
        assert [gap.start for gap in rows(store, GapRow)] == [NOON + 9]

    def test_job_that_went_in_the_second_in_which_it_was_seen_is_closed(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        recorded.submit("gone")
        process.stop()
        recorded.delete("gone")
        started(recorded, store, "b").step(10)
        assert record(store, "gone").job.outcome == "Deleted"

    def test_queue_that_changed_during_an_absence_has_its_weight_from_its_end_on(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        for name in ("same", "other", "gone"):
            recorded.weigh(name, 2)
        process.step(10)
        process.stop()
        recorded.weigh("other", 3)
        recorded.delete("gone", TENANT_QUEUES)
        recorded.clock.step(100)
        started(recorded, store, "b").step(10)
        now = {row.name: row.weight for row in store.kept.queues(Span(recorded.seconds, recorded.seconds + 1))}
        assert now == {"same": 2, "other": 3, "gone": 0}
        assert [row.start for row in rows(store, QueueRow) if row.name == "same"] == [NOON]


class TestSeveralRecorders:
    def test_second_recorder_makes_no_gap_and_no_other_rows(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        recorded.submit("digits")
        process.step(10)
        second = started(recorded, store, "b")
        recorded.admit("digits")
        for _ in range(10):
            process.step(5)
            second.step()
        before = dict(store.kept.rows)
        assert rows(store, GapRow) == []
        assert holder(recorded) == "a"
        process.stop()
        second.step(5)
        assert holder(recorded) == "b"
        assert store.kept.rows == before
        assert store.kept.recorded_until() == recorded.seconds - 1

    def test_recorder_that_watched_all_along_takes_over_without_a_gap(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        process.step(10)
        second = started(recorded, store, "b")
        second.step(5)  # the first is killed here
        recorded.submit("short")
        second.step(2)
        recorded.delete("short")
        for _ in range(10):
            second.step(5)
        assert holder(recorded) == "b"
        assert rows(store, GapRow) == []
        assert not record(store, "short").job.is_approximate

    def test_what_a_recorder_writes_late_of_a_job_that_is_gone_is_closed_in_time(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        process.step(10)
        recorded.submit("gone")
        process.catch_up()
        process.cut()
        recorded.delete("gone")
        second = started(recorded, store, "b")
        second.step(30)
        process.recorder.step()
        second.step(10)
        assert (holder(recorded), record(store, "gone").job.ended) == ("b", None)
        second.step(recorder_module.SWEEP_SECONDS)
        job = record(store, "gone").job
        assert (job.outcome, job.ended, job.is_approximate) == ("Deleted", NOON + 10, True)


class TestLease:
    def test_lease_says_how_far_everything_is_recorded(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        recorded.submit("digits")
        newest = int(recorded.job("digits")["metadata"]["resourceVersion"])
        process.step(10)
        notes = lease(recorded)["metadata"]["annotations"]
        assert version(recorded) >= newest
        assert timestamps.parse_seconds(notes[RECORDED_UNTIL]) == store.kept.recorded_until() == NOON + 9

    def test_lease_does_not_move_while_an_event_is_on_its_way_or_a_watch_fails(
        self, recorded: RecordedCluster, process: RecorderProcess
    ) -> None:
        process.step(10)
        recorded.submit("late")
        newest = int(recorded.job("late")["metadata"]["resourceVersion"])
        recorded.clock.step(10)
        process.recorder.step()
        assert version(recorded) < newest
        process.catch_up()
        process.cut()
        process.step(10)
        assert version(recorded) < newest

    def test_lease_does_not_move_while_the_database_is_away(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        process.step(10)
        store.away = True
        recorded.submit("digits")
        before = lease(recorded)
        process.step(10)
        assert lease(recorded) == before
        assert process.recorder.behind == 11
        store.away = False
        process.step(10)
        assert int(lease(recorded)["metadata"]["annotations"][RECORDED_VERSION]) > int(
            before["metadata"]["annotations"][RECORDED_VERSION]
        )


class TestDatabase:
    def test_database_that_is_away_is_named_once_and_loses_nothing(
        self,
        recorded: RecordedCluster,
        process: RecorderProcess,
        store: FailingHistory,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.INFO)
        store.away = True
        recorded.submit("digits")
        for _ in range(20):
            process.step(1)
        recorded.delete("digits")
        process.step(1)
        assert rows(store, JobRow) == []
        store.away = False
        process.step(10)
        assert record(store, "digits").job.outcome == "Deleted"
        assert [line for line in caplog.messages if "does not answer" in line] == [
            "the database does not answer; trying again",
            "over after 30 s: the database does not answer",
        ]

    def test_rows_that_were_dropped_are_read_again_and_the_rest_is_said(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        process.pending._most = 4
        recorded.submit("lost")
        process.step(10)
        store.away = True
        for number in range(10):
            recorded.submit(f"job-{number}")
        process.step(10)
        recorded.delete("lost")
        process.step(90)
        store.away = False
        process.step(10)
        process.step(10)
        assert {row.name for row in rows(store, JobRow)} == {"lost", *(f"job-{number}" for number in range(10))}
        assert record(store, "lost").job.outcome == "Deleted"
        assert [gap.start for gap in rows(store, GapRow)] == [NOON + 9]

    def test_database_that_is_restored_from_a_backup_gets_what_exists(
        self, recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
    ) -> None:
        backup = copy.deepcopy(store.kept)
        recorded.submit("digits")
        process.step(20)
        store.kept = backup
        process.step(10)
        assert record(store, "digits").job.outcome == ""
        assert [(gap.start, gap.end) for gap in rows(store, GapRow)] == [(NOON - 1, NOON + 29)]

    def test_row_that_the_database_cannot_take_keeps_no_other_row_out(
        self,
        recorded: RecordedCluster,
        process: RecorderProcess,
        store: FailingHistory,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        write = store.kept.write

        def picky(found: Any) -> int:
            if any(isinstance(row, JobRow) and row.name == "odd" for row in found):
                raise TypeError("a NUL")
            return write(found)

        monkeypatch.setattr(store.kept, "write", picky)
        for name in ("good", "odd", "fine"):
            recorded.submit(name)
        process.step(10)
        assert {row.name for row in rows(store, JobRow)} == {"good", "fine"}
        assert any("left out" in line for line in caplog.messages)
        assert store.kept.recorded_until() == NOON + 9

    def test_database_of_another_version_ends_the_recorder(
        self, process: RecorderProcess, store: FailingHistory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: int) -> None:
            raise WrongSchema("newer")

        monkeypatch.setattr(store.kept, "record_until", refuse)
        with pytest.raises(HistoryError, match="newer"):
            process.step(10)

    def test_old_jobs_are_pruned_a_few_at_a_time(
        self, recorded: RecordedCluster, store: FailingHistory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recorder_module, "PRUNED_AT_ONCE", 2)
        process = started(recorded, store, days=10)
        for number in range(5):
            recorded.submit(f"job-{number}")
            recorded.finish(f"job-{number}")
        process.step(10)
        process.step(11 * 86_400)
        assert len(rows(store, JobRow)) == 3
        for _ in range(3):
            process.step(10)
        assert rows(store, JobRow) == []


def test_pending_rows_keep_the_newest_state_and_the_ends_of_what_is_gone() -> None:
    def job(uid: str, version: int) -> JobRow:
        return JobRow(uid=uid, version=version, namespace="n", name="j", queue="q", created=1)

    pending = PendingRows(most=2)
    pending.put([job("a", 2), job("a", 1), job("b", 1), job("c", 1)])
    assert (len(pending), pending.take_has_dropped(), pending.take_has_dropped()) == (2, True, False)
    pending.put([job("d", 1), job("e", 1), job("f", 1)], is_gone=True)
    assert [(row.uid, row.version) for row in pending.take() if isinstance(row, JobRow)] == [
        ("a", 2),
        ("b", 1),
        ("d", 1),
        ("e", 1),
    ]
    assert pending.take_has_dropped()
    assert pending.take() == []


def test_recorder_that_starts_is_as_far_behind_as_the_history_is(
    recorded: RecordedCluster, process: RecorderProcess, store: FailingHistory
) -> None:
    process.step(10)
    recorded.clock.step(500)
    again = RecorderProcess(recorded, store, "b")
    assert again.recorder.behind == 0
    again.recorder.step()
    assert again.recorder.behind == 501


def test_pool_is_asked_for_at_once_then_once_a_minute_and_soon_again_without_an_answer() -> None:
    clock, noted, stopped = Clock(), [], threading.Event()
    answers: list[Any] = [ClusterError("away"), {"cpu": 4}, TypeError("no document"), {"cpu": 8}]

    def read() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    reader = PoolReader(read, noted.append, clock)
    stopped.set()
    reader.run(stopped, Turns())
    assert len(answers) == 3
    for seconds in (5, 30, 30, 60):
        clock.step(seconds)
        reader.step()
    assert (noted, answers) == ([{"cpu": 4}, {"cpu": 8}], [])
