"""Scenarios in which scale requests change the number of workers of a job."""

from collections.abc import Mapping

from crds.api_resources import SCALE_OUTS, TORCHJOBS
from kube.api import Manifest
from tests.faults.api import ApiClient
from tests.faults.scenarios import people
from tests.faults.scenarios.resizes import DONE, elastic, want
from tests.faults.scenarios.scenario import NAMESPACE, ONE, Scenario, Step


def _once_it_runs(count: int, *steps: Step, instead: tuple[Step, ...] = ()) -> Step:
    """Return the step that takes `steps` if the job runs with `count` workers, and `instead` if the job has another
    number of workers.
    """

    def step(cluster: ApiClient) -> None:
        runs = people.workers("one", count)({"one": cluster.get(TORCHJOBS, "one", NAMESPACE)})
        for each in steps if runs else instead:
            each(cluster)

    return step


def _loses_another_worker(jobs: Mapping[str, Manifest]) -> bool:
    scaling = (jobs["one"].get("status") or {}).get("scaling") or {}
    return not {"one-worker-1"}.issuperset(scaling.get("victims") or ())


def _is_scaling_or_never_will(jobs: Mapping[str, Manifest]) -> bool:
    return people.scaling("one", 4)(jobs) or people.tampered("one")(jobs)


def _take_back(cluster: ApiClient) -> None:
    cluster.delete(SCALE_OUTS, "more", NAMESPACE)


_MORE = people.scale("more", "one", toAdd={"count": 2}, timeoutSeconds=10)

SCENARIOS = (
    Scenario(
        name="shrinknamed",
        queues=ONE,
        jobs={"one": elastic(3)},
        ends=DONE,
        steps=(
            (
                people.workers("one", 3),
                _once_it_runs(
                    3,
                    people.scale("less", "one", toDelete={"podNames": ["one-worker-1"]}),
                    instead=(want("one", 2),),
                ),
            ),
        ),
        sizes={"one": 2},
        outcomes={"less": "Succeeded"},
        never=_loses_another_worker,
        gentle=True,
    ),
    Scenario(
        name="scaleout",
        queues={"a": {"quota": {"cpu": "5"}}},
        jobs={"one": elastic(2)},
        ends=DONE,
        steps=(
            (
                people.workers("one", 2),
                _once_it_runs(2, people.scale("more", "one", toAdd={"count": 2}), instead=(want("one", 4),)),
            ),
        ),
        sizes={"one": 4},
        outcomes={"more": "Succeeded"},
        gentle=True,
    ),
    Scenario(
        name="scaleouttimeout",
        queues=ONE,
        jobs={"one": elastic(2)},
        ends=DONE,
        steps=((people.workers("one", 2), _once_it_runs(2, _MORE)),),
        stalls=lambda task_type, index, _: task_type == "worker" and index == 3,
        sizes={"one": 2},
        outcomes={"more": "Failed"},
        gentle=True,
        patience=30.0,
    ),
    Scenario(
        name="twoscalers",
        queues=ONE,
        jobs={"one": elastic(2)},
        ends=DONE,
        steps=(
            (
                people.workers("one", 2),
                _once_it_runs(
                    2,
                    people.scale("more", "one", toAdd={"count": 1}),
                    people.scale("less", "one", toDelete={"count": 1}),
                ),
            ),
        ),
        sizes={"one": 2},
        outcomes={"more": "Succeeded", "less": "Succeeded"},
        gentle=True,
    ),
    Scenario(
        name="scalerdeleted",
        queues=ONE,
        jobs={"one": elastic(2)},
        ends=DONE,
        steps=(
            (
                people.workers("one", 2),
                _once_it_runs(2, people.scale("more", "one", toAdd={"count": 2}), instead=(people.tamper("one"),)),
            ),
            (_is_scaling_or_never_will, _take_back),
        ),
        stalls=lambda task_type, index, _: task_type == "worker" and index == 3,
        sizes={"one": 2},
        outcomes={"more": ""},
        gentle=True,
    ),
)
