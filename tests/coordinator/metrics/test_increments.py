"""The counts that worker processes send to their supervisor: no count is lost or doubled, whichever process dies."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from coordinator.metrics import increments
from coordinator.metrics.increments import Increments
from coordinator.metrics.queue_names import QueueNames
from coordinator.metrics.registry import Cells, Registry, number
from queues.metrics import UNFINISHED_SECONDS
from reconcilers.metrics import ADMISSIONS, WAIT_SECONDS

STEPS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["count", "tell", "die"]), st.sampled_from("ab")), max_size=40
)


class Child:
    """A worker process, and the counts that it has sent."""

    def __init__(self, queues: set[str] | None = None) -> None:
        self.registry = Registry(QueueNames(10))
        self.told = Increments(self.registry, lambda: queues)

    def tell(self, supervisor: Registry) -> None:
        increments.add(supervisor, orjson.loads(orjson.dumps(self.told.report())))


def series(registry: Registry) -> dict[tuple[str, ...], Cells]:
    return dict(registry.collect().get(ADMISSIONS, {}))


@given(STEPS)
def test_a_supervisor_has_what_its_processes_have_told_and_no_count_falls(steps: list[tuple[int, str, str]]) -> None:
    supervisor, children = Registry(QueueNames(10)), [Child(), Child()]
    told: dict[tuple[str, ...], float] = {}
    open_counts: list[dict[tuple[str, ...], float]] = [{}, {}]
    for index, step, queue in steps:
        before = series(supervisor)
        if step == "count":
            children[index].registry.count(ADMISSIONS, queue)
            children[index].registry.observe(WAIT_SECONDS, 2.0, queue)
            open_counts[index][(queue,)] = open_counts[index].get((queue,), 0.0) + 1
        elif step == "tell":
            children[index].tell(supervisor)
            for labels, amount in open_counts[index].items():
                told[labels] = told.get(labels, 0.0) + amount
            open_counts[index] = {}
        else:
            children[index], open_counts[index] = Child(), {}
        after = series(supervisor)
        assert all(after[labels] >= cells for labels, cells in before.items())
    assert series(supervisor) == {labels: (amount,) for labels, amount in told.items()}
    waits = supervisor.collect().get(WAIT_SECONDS, {})
    assert {labels: sum(cells[:-1]) for labels, cells in waits.items()} == told


def test_the_series_of_a_queue_that_was_deleted_go_even_if_their_process_is_dead() -> None:
    supervisor, queues = Registry(QueueNames(10)), {"a", "b"}
    dead, living = Child(queues), Child(queues)
    for child in (dead, living):
        child.registry.count(ADMISSIONS, "a")
        child.registry.count(ADMISSIONS, "b")
        child.tell(supervisor)
    queues.remove("a")
    living.tell(supervisor)
    assert series(supervisor) == {("b",): (2.0,)}
    queues.remove("b")
    Child(queues).tell(supervisor)
    assert series(supervisor) == {}, "the first report of a process names all existing queues"


def test_gauges_are_those_of_the_newest_report_and_what_cannot_be_read_is_left_out() -> None:
    child = Child()
    child.registry.add_source(lambda: [number(UNFINISHED_SECONDS, 2, "reconcile")])
    report = child.told.report()
    assert [sample.cells for sample in increments.gauges(report)] == [(2.0,)]
    assert increments.gauges(None) == []
    rows = [["unknown", [], [1]], [ADMISSIONS.name, [], [1.0]], [ADMISSIONS.name, ["a"], [1.0]]]
    assert [sample.labels for sample in increments.parse_rows(rows)] == [("a",)]
    supervisor = Registry(QueueNames(1))
    increments.add(supervisor, ["no report"])
    assert supervisor.collect() == {}
