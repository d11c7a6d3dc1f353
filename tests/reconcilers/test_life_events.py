"""The Events of a normal life: which Events there are, and that no process waits for them."""

import threading
from typing import Any

import pytest

from crds.api_resources import EVENTS
from crds.keys import JobKey
from kube import errors
from kube.api import Manifest
from reconcilers import facts
from reconcilers.apply.events import AT_ONCE, PER_SECOND, SLOWED, EventBudget, LifeEventWriter
from reconcilers.values import EmitEvent
from tests.support.clock import Clock
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import ADMISSION, KEY, job, status
from tests.support.waiting import patient, until

HAPPENED = EmitEvent("Running", "it runs")


@pytest.mark.parametrize(
    ("before", "after", "event"),
    [
        pytest.param({}, status("Queued"), EmitEvent("Queued", "Queued"), id="queued"),
        pytest.param(status("Suspended"), status("Queued"), EmitEvent("Queued", "Queued"), id="resumed"),
        pytest.param({}, status("Admitted"), EmitEvent("Admitted", "Admitted"), id="admitted"),
        pytest.param(status("Admitted"), status("Running"), EmitEvent("Running", "Running"), id="running"),
        pytest.param(
            status("Admitted"),
            status("Running", restartGeneration=2),
            EmitEvent("Running", "Running, after 2 restarts"),
            id="running again",
        ),
        pytest.param(status("Running"), status("Succeeded"), EmitEvent("Succeeded", "Succeeded"), id="succeeded"),
        pytest.param(status("Running"), status("Queued"), None, id="sent back, which has an Event of its own"),
        pytest.param(status("Running"), status("Failed"), None, id="failed, which has an Event of its own"),
        pytest.param(status("Running"), status("Running", restartCount=1), None, id="no other phase"),
        pytest.param(status("Queued"), status("Queued", observedGeneration=2), None, id="queued before"),
        pytest.param(
            status("Admitted"), status("Admitted", admission=ADMISSION | {"charge": {}}), None, id="the same attempt"
        ),
    ],
)
def test_a_job_has_one_event_for_each_step_of_a_normal_life(
    before: dict[str, Any], after: dict[str, Any], event: EmitEvent | None
) -> None:
    assert facts.life_event(job(status=before), after) == event


class Recorder:
    """A cluster that records the objects that are created, once the test lets it continue."""

    def __init__(self, error: errors.ClusterError | None = None) -> None:
        self.made: list[Manifest] = []
        self.go_on = threading.Event()
        self.error = error

    def create(self, resource: Any, body: Manifest, namespace: str) -> None:
        assert (resource, namespace) == (EVENTS, KEY.namespace)
        self.go_on.wait(patient())
        self.made.append(body)
        if self.error is not None:
            raise self.error


def test_writer_drops_what_its_budget_does_not_cover_and_never_waits() -> None:
    cluster, clock = Recorder(), Clock()
    writer = LifeEventWriter(cluster, clock, clock)  # type: ignore[arg-type]
    for number in range(10 * AT_ONCE):
        writer.tell(JobKey(KEY.namespace, "digits", f"uid-{number}"), HAPPENED)
    cluster.go_on.set()
    until(lambda: len(cluster.made) == AT_ONCE)
    until(lambda: writer._waiting == 0)
    clock.step(2.0)
    for _ in range(AT_ONCE):
        writer.tell(KEY, HAPPENED)
    until(lambda: writer._waiting == 0)
    assert len(cluster.made) == AT_ONCE + 2 * PER_SECOND
    writer.close()
    clock.step(60.0)
    writer.tell(KEY, HAPPENED)
    assert len(cluster.made) == AT_ONCE + 2 * PER_SECOND


def test_a_flood_of_one_namespace_leaves_another_its_part_of_the_budget() -> None:
    budget = EventBudget()

    def taken(namespace: str, now: float) -> int:
        return sum(budget.takes(namespace, now) for _ in range(10 * AT_ONCE))

    assert taken("flood", 0.0) == AT_ONCE, "alone, a namespace has all"
    assert taken("ours", 0.0) == AT_ONCE / 2
    assert [taken("flood", 4.0), taken("ours", 4.0)] == [2 * PER_SECOND, 2 * PER_SECOND]
    assert taken("flood", 13.0) == AT_ONCE / 2 - 3, "9 s of half of the budget"
    assert taken("flood", 15.0) == 2 * PER_SECOND, "alone again"


def test_a_slow_api_server_gets_fewer_events() -> None:
    cluster, clock = Recorder(), Clock()
    writer = LifeEventWriter(cluster, clock, clock)  # type: ignore[arg-type]
    writer.tell(KEY, HAPPENED)
    clock.step(0.4)
    cluster.go_on.set()
    until(lambda: writer._waiting == 0)
    clock.step(60.0)  # the budget is full again
    for _ in range(AT_ONCE):
        writer.tell(KEY, HAPPENED)
    until(lambda: writer._waiting == 0)
    assert len(cluster.made) - 1 == AT_ONCE / (1 + 0.4 * SLOWED)
    writer.close()


def test_one_slow_event_does_not_silence_a_namespace_for_minutes() -> None:
    budget, names = EventBudget(), [f"team-{number}" for number in range(20)]
    assert all(budget.takes(name, 0.0, AT_ONCE) for name in names)
    seconds = range(1, 600)
    again = next(now for now in seconds if [budget.takes(name, now) for name in names][-1])
    assert again <= 2 * AT_ONCE / PER_SECOND


def test_writer_goes_on_after_an_error() -> None:
    cluster, clock = Recorder(errors.Forbidden("no")), Clock()
    cluster.go_on.set()
    writer = LifeEventWriter(cluster, clock, clock)  # type: ignore[arg-type]
    for _ in range(3):
        writer.tell(KEY, HAPPENED)
    until(lambda: len(cluster.made) == 3)
    writer.close()


def test_events_of_a_job_tell_its_life_and_belong_to_it(bench: Bench) -> None:
    writer = LifeEventWriter(bench.counting)  # type: ignore[arg-type]
    bench.reconciler._tell = writer.tell
    bench.submit()
    bench.reconcile()
    bench.pick()
    bench.reconcile(times=2)
    bench.move("Running")
    bench.reconcile()
    bench.move("Succeeded", exit_code=0)
    bench.reconcile(times=2)
    until(lambda: writer._waiting == 0)
    found = bench.cluster.list(EVENTS, bench.namespace).items
    assert {each["reason"] for each in found} == {"Queued", "Admitted", "Running", "Succeeded"}
    assert {each["metadata"]["ownerReferences"][0]["uid"] for each in found} == {bench.key.uid}
    assert {each["involvedObject"]["uid"] for each in found} == {bench.key.uid}
    assert {each["type"] for each in found} == {"Normal"}
    writer.close()
