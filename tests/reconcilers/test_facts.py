"""Each event in the life of a job counts once, after the API server has accepted the write."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.metrics.queue_names import QueueNames
from coordinator.metrics.registry import Registry
from crds.api_resources import TORCHJOBS
from kube.errors import Conflict, Unreachable
from kube.process.meter import Metric
from reconcilers import facts, metrics
from reconcilers.reconcile import Reconciler
from reconcilers.settings import ReconcileSettings
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import task

BEFORE_ADMISSION = ("dispatch", "handover", "admission")
MASTER, WORKER = "digits-master-0", "digits-worker-0"


@pytest.fixture
def registry() -> Registry:
    return Registry(QueueNames(10))


@pytest.fixture
def metered(bench: Bench, registry: Registry) -> Iterator[Bench]:
    settings = ReconcileSettings(admission_timeout=0.0, most_seconds=60.0, restart_backoff=0.0)
    with Reconciler(bench.counting, bench.pods, settings, meter=registry) as reconciler:
        bench.reconciler = reconciler
        yield bench


def counted(registry: Registry, metric: Metric) -> dict[tuple[str, ...], float]:
    """Return the counts of a metric without the queue. For a histogram, return the number of its values."""
    found = registry.collect().get(metric, {})
    return {labels[1:]: sum(cells) if metric.kind == "counter" else sum(cells[:-1]) for labels, cells in found.items()}


def test_the_life_of_a_job_with_a_failure_counts_each_fact_once(metered: Bench, registry: Registry) -> None:
    tasks = {"Master": task(restartPolicy="OnFailure"), "Worker": task(1, dependsOn=[])}
    metered.submit(tasks, successPolicy="Master")
    metered.reconcile()
    assert registry.collect() == {}, "a job that waits is no fact"
    metered.pick()
    metered.reconcile(times=3)
    assert counted(registry, metrics.ADMISSIONS) == counted(registry, metrics.WAIT_SECONDS) == {(): 1.0}
    assert counted(registry, metrics.SUBMIT_TO_PODS_SECONDS) == {(): 1.0}

    metered.move("Running", MASTER, WORKER)
    metered.reconcile(times=2)
    assert counted(registry, metrics.UNTIL_RUNNING_SECONDS) == {(): 1.0}

    metered.move("Failed", MASTER, exit_code=1)
    metered.reconcile(times=4)
    assert counted(registry, metrics.RESTARTS) == {("Retryable",): 1.0}
    metered.move("Running")
    metered.reconcile(times=2)
    assert counted(registry, metrics.UNTIL_RUNNING_SECONDS) == {(): 1.0}, "the job had run before"
    metered.move("Succeeded", MASTER, exit_code=0)
    metered.reconcile(times=3)
    assert counted(registry, metrics.FINISHED) == {("succeeded",): 1.0}
    assert counted(registry, metrics.EXECUTION_SECONDS) == {(): 1.0}
    assert counted(registry, metrics.ADMISSIONS) == counted(registry, metrics.SUBMIT_TO_PODS_SECONDS) == {(): 1.0}
    assert counted(registry, metrics.SENT_BACK) == {}


def test_an_admission_measures_each_stage_since_the_pick_once(metered: Bench, registry: Registry) -> None:
    metered.submit()
    metered.reconcile()
    assert registry.collect() == {}
    metered.pick()
    metered.reconcile(times=3)
    found = registry.collect()[metrics.HELD_SECONDS]
    assert {stage: sum(cells[:-1]) for (stage,), cells in found.items()} == dict.fromkeys(BEFORE_ADMISSION, 1)
    assert {stage: found[stage,][-1] for stage in ("dispatch", "handover")} == pytest.approx(
        {"dispatch": 2.0, "handover": 1.0}, abs=0.001
    )


@pytest.mark.parametrize("error", [Conflict("outdated"), Unreachable("no answer")])
@pytest.mark.parametrize("taken", [True, False])
def test_a_write_without_an_answer_counts_once_whether_it_was_taken_or_is_repeated(
    metered: Bench, registry: Registry, error: Exception, taken: bool
) -> None:
    metered.submit()
    metered.reconcile()
    metered.pick()
    metered.counting._cluster = Unanswered(metered.counting._cluster, error, taken=taken)
    for _ in range(4):
        try:
            metered.reconcile()
        except Unreachable:
            continue
    assert metered.job.status.phase == "Admitted"
    assert counted(registry, metrics.ADMISSIONS) == {(): 1.0}


def test_another_worker_that_took_the_key_leaves_the_count_to_the_one_that_wrote(
    metered: Bench, registry: Registry
) -> None:
    metered.submit()
    metered.reconcile()
    metered.pick()
    metered.counting._cluster = Unanswered(metered.counting._cluster, Unreachable("no answer"), taken=True)
    with pytest.raises(Unreachable):
        metered.reconcile()
    own = metered.key
    restarted = {"status": {"restartCount": 1}}
    metered.cluster.patch(TORCHJOBS, own.name, restarted, own.namespace, subresource="status")
    metered.key = type(own)(own.namespace, "another", "uid-of-another")
    metered.reconcile()
    assert counted(registry, metrics.ADMISSIONS) == {(): 1.0}, "the fact is looked up with the next key of any job"
    assert counted(registry, metrics.RESTARTS) == {}, "the worker that wrote the restart counts it"
    metered.key = own
    metered.reconcile(times=2)
    assert counted(registry, metrics.ADMISSIONS) == {(): 1.0}


@pytest.mark.parametrize(
    ("status", "change", "taken"),
    [
        ({"phase": "Admitted", "attempt": 1}, {"phase": "Admitted"}, True),
        ({"phase": "Queued"}, {"phase": "Admitted"}, False),
        ({"phase": "Queued"}, {"admission": None}, True),
        ({"admission": {"attempt": 1}}, {"admission": None}, False),
        ({"admission": {"attempt": 1, "pick": 2}}, {"admission": {"attempt": 1}}, True),
        ({}, {"admission": {"attempt": 1}}, False),
    ],
)
def test_a_patch_was_taken_if_all_its_values_are_there(status: Any, change: Any, taken: bool) -> None:
    assert facts.is_taken(status, change) is taken


class Unanswered:
    """A cluster whose first write of a job's status ends with an error, whether the write takes effect or not."""

    def __init__(self, cluster: Any, error: Exception, *, taken: bool) -> None:
        self._cluster = cluster
        self._error: Exception | None = error
        self._taken = taken

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._cluster, verb)
        return method

    def patch(self, resource: Any, *arguments: Any, **options: Any) -> Any:
        if resource is not TORCHJOBS or self._error is None:
            return self._cluster.patch(resource, *arguments, **options)
        error, self._error = self._error, None
        if self._taken:
            self._cluster.patch(resource, *arguments, **options)
        raise error
