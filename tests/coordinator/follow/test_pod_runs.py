"""What the status of a pod says about the runs of its containers."""

from typing import Any

import pytest

from coordinator.follow import pod_runs
from coordinator.follow.pod_runs import RunCounts

ENDED = {"terminated": {"exitCode": 1}}
CRASHED = {"waiting": {"reason": "CrashLoopBackOff"}}
CREATED = {"waiting": {"reason": "ContainerCreating"}}


def pod(*statuses: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **more: Any) -> dict[str, Any]:
    marks = {"train.distributed.io/task-type": "worker", "train.distributed.io/task-index": "2"}
    spec = {"containers": [{"name": "side"}, {"name": "torch"}], "initContainers": [{"name": "code"}]}
    status = {"phase": "Running", "containerStatuses": list(statuses), "initContainerStatuses": list(init)}
    return {"metadata": {"name": "p", "uid": "u", "labels": marks, **more}, "spec": spec, "status": status}


def status(count: int, state: dict[str, Any], before: dict[str, Any] | None = None, name: str = "torch") -> Any:
    return {"name": name, "restartCount": count, "state": state, "lastState": before or {}}


@pytest.mark.parametrize(
    ("count", "state", "before", "last", "over", "previous"),
    [
        (0, CREATED, None, -1, None, None),
        (0, {"running": {}}, None, 0, False, None),
        (2, {"running": {}}, ENDED, 2, False, 1),
        (2, ENDED, ENDED, 2, True, 1),
        (2, CRASHED, ENDED, 2, True, None),
        (3, CREATED, ENDED, 2, True, None),
    ],
)
def test_the_last_run_of_a_container_and_the_one_that_is_called_previous(
    count: int, state: dict[str, Any], before: dict[str, Any] | None, last: int, over: bool, previous: int | None
) -> None:
    runs = pod_runs.read(pod(status(count, state, before))).of("torch")
    assert runs.last == last
    if last >= 0:
        assert (runs.is_over(last), runs.is_previous(last)) == (over, False)
    assert [number for number in range(last) if runs.is_previous(number)] == ([] if previous is None else [previous])


def test_the_main_container_is_shown_after_an_init_container_that_failed() -> None:
    failed = pod_runs.read(pod(init=(status(0, ENDED, name="code"),)))
    assert (failed.label, failed.selected(""), failed.selected("side")) == ("worker-2", ("code", "torch"), ("side",))
    done = pod_runs.read(pod(init=(status(0, {"terminated": {"exitCode": 0}}, name="code"),)))
    assert done.selected("") == ("torch",)
    assert done.of("side") == RunCounts()


def test_the_runs_that_a_server_lists_become_pods() -> None:
    run = {"pod": "p", "podUid": "u", "task": "worker", "index": 1, "attempt": 1, "container": "torch", "init": False}
    runs = [
        {**run, "restart": 0, "startedAt": "t", "endedAt": "t", "exitCode": 1, "kept": True},
        {**run, "restart": 1, "startedAt": "t", "endedAt": None, "exitCode": None, "kept": True},
        {**run, "podUid": "v", "restart": 0, "startedAt": "t", "endedAt": None, "exitCode": None, "kept": False},
    ]
    first, second = pod_runs.of_list(runs)
    assert (first.is_gone, first.of("torch").last, first.is_over("torch", 1)) == (True, 1, True)
    assert (second.is_gone, second.label, second.is_over("torch", 0)) == (False, "worker-1", False)
