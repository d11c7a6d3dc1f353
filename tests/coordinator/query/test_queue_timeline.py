"""What a queue did in a span, as a document."""

from itertools import pairwise

from coordinator.query import queue_timeline
from coordinator.query.questions import Document
from crds import timestamps
from history.rows import PoolRow, QueueRow, Row
from tests.doubles.memory_history import MemoryHistory
from tests.support.history_rows import GPU, hold, job, wait

DAY = 86_400
STEP = DAY // queue_timeline.STEPS
NOW = 1_793_491_200 + DAY
START = NOW - DAY


def timeline(*rows: Row, until: int = NOW, namespaces: frozenset[str] | None = None, queue: str = "a") -> Document:
    store = MemoryHistory()
    store.write([PoolRow(start=START - 1, amounts={GPU: 8}), *rows])
    store.record_until(until)
    return queue_timeline.answer_timeline(store, {"queue": queue}, namespaces, NOW, "dominant")


def percents(document: Document) -> list[tuple[int | None, int | None]]:
    return [(each["sharePercent"], each["targetPercent"]) for each in document["steps"]]


TWO_QUEUES = (
    QueueRow(name="a", start=START, version=1, weight=3),
    QueueRow(name="b", start=START, version=1, weight=1),
    job("mine", created=START),
    hold("mine", START, START + 2 * STEP, 2),
    job("theirs", created=START, queue="b", namespace="blue"),
    hold("theirs", START + STEP, START + 3 * STEP, 6, queue="b"),
)


def test_each_step_has_the_share_and_the_target_of_that_step_alone() -> None:
    found = timeline(*TWO_QUEUES)
    assert percents(found)[:4] == [(100, 100), (25, 75), (None, None), (None, None)]
    assert percents(timeline(*TWO_QUEUES, queue="b"))[:4] == [(None, None), (75, 25), (100, 100), (None, None)]
    assert len(found["steps"]) == queue_timeline.STEPS
    edges = [(each["from"], each["to"]) for each in found["steps"]]
    assert edges[0][0] == found["from"] == timestamps.format_time(START)
    assert edges[-1][1] == found["to"] == timestamps.format_time(NOW)
    assert all(first[1] == second[0] for first, second in pairwise(edges))


def test_what_is_not_recorded_yet_has_no_share() -> None:
    found = timeline(job("mine", created=START), hold("mine", START, None), until=START + STEP + STEP // 2)
    assert percents(found)[:4] == [(100, 100), (100, 100), (None, None), (None, None)]


def test_jobs_are_told_with_the_times_in_which_they_waited_and_held_room() -> None:
    (found,) = timeline(
        job("mine", created=START),
        wait("mine", START, START + 10),
        hold("mine", START + 10, START + 20),
        wait("mine", START + 20, START + 20),
        hold("mine", START + 30, None, number=2),
        until=START + 50,
    )["items"]
    assert found["state"] == "Admitted"
    at = timestamps.format_time
    assert found["waits"] == [{"from": at(START), "to": at(START + 10)}]
    assert found["holds"] == [
        {"from": at(START + 10), "to": at(START + 20)},
        {"from": at(START + 30), "to": at(START + 50)},
    ]


def test_waits_do_not_overlap() -> None:
    (found,) = timeline(job("mine", created=START), wait("mine", START, None), wait("mine", START + 5, None))["items"]
    at = timestamps.format_time
    assert [(each["from"], each["to"]) for each in found["waits"]] == [
        (at(START), at(START + 5)),
        (at(START + 5), at(NOW)),
    ]
    assert found["state"] == "Waiting"


def test_lists_are_bounded_and_say_so() -> None:
    many = [job(f"u{number}", created=START + number) for number in range(queue_timeline.MOST_JOBS + 1)]
    holds = [hold("u50", START + number, START + number + 1, number=number + 1) for number in range(40)]
    found = timeline(*many, *holds)
    assert (len(found["items"]), found["hasMoreJobs"]) == (queue_timeline.MOST_JOBS, True)
    assert found["items"][0]["holds"][-1]["from"] == timestamps.format_time(START + 39)
    assert len(found["items"][0]["holds"]) == queue_timeline.MOST_TIMES


def test_a_reader_of_one_namespace_is_told_the_share_of_its_own_jobs() -> None:
    found = timeline(*TWO_QUEUES, namespaces=frozenset({"red"}))
    assert percents(found)[1] == (25, 75)
    others = timeline(*TWO_QUEUES, namespaces=frozenset({"red"}), queue="b")
    assert {*percents(others)} == {(None, None)}
    assert others["items"] == []
