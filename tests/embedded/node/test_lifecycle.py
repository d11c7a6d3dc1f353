"""The next actions for a pod and the content of its status, as tables."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds import timestamps
from embedded.node.runs.container_processes import Process
from embedded.node.runs.container_runs import Ending, Run
from embedded.node.status import pod_lifecycle, pod_status
from embedded.node.status.pod_lifecycle import (
    ActionPlan,
    Backoff,
    Containers,
    KillContainer,
    RestartPolicy,
    StartContainer,
    TerminateContainer,
    Termination,
)
from embedded.node.status.pod_status import PodState
from embedded.pod import PodFailure
from embedded.status_conditions import differs

NOW = 1_000_000.0


def ended(restart: int = 0, code: int = 0, ago: float = 1.0, lasted: float = 1.0) -> Run:
    return Run(restart, NOW - ago - lasted, Process(1, 1), Ending(code, NOW - ago))


def running(restart: int = 0) -> Run:
    return Run(restart, NOW - 5, Process(7, 1))


def beginning(restart: int = 0) -> Run:
    return Run(restart)


def containers(policy: RestartPolicy, *main: str, init: tuple[str, ...] = ()) -> Containers:
    return Containers(main or ("c",), init, policy)


@pytest.mark.parametrize(
    ("policy", "history", "expected"),
    [
        ("Never", (), ActionPlan((StartContainer("c", 0),))),
        ("Never", (beginning(),), ActionPlan()),
        ("Never", (running(),), ActionPlan()),
        ("Never", (ended(code=0),), ActionPlan()),
        ("Never", (ended(code=1),), ActionPlan()),
        ("OnFailure", (ended(code=0),), ActionPlan()),
        ("OnFailure", (ended(code=1),), ActionPlan((StartContainer("c", 1),))),
        ("Always", (ended(code=0),), ActionPlan((StartContainer("c", 1),))),
        ("Always", (ended(0, 1, ago=60), ended(1, 1)), ActionPlan(wake_at=NOW + 9)),
        ("Always", (ended(0, 1, ago=60), ended(1, 1, ago=10)), ActionPlan((StartContainer("c", 2),))),
        ("Always", (ended(0, 1), ended(1, 1), ended(2, 1)), ActionPlan(wake_at=NOW + 19)),
        ("Always", (ended(0, 1), ended(1, 1), ended(2, 1, lasted=600)), ActionPlan((StartContainer("c", 3),))),
    ],
)
def test_plan_starts_a_container_as_its_restart_policy_requires(
    policy: RestartPolicy, history: tuple[Run, ...], expected: ActionPlan
) -> None:
    assert pod_lifecycle.plan(containers(policy), {"c": history}, NOW) == expected


def test_the_backoff_doubles_up_to_its_limit() -> None:
    runs = [ended(index, 1) for index in range(9)]
    waits = [Backoff(10, 300).delay(runs[:count]) for count in range(1, 10)]
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300, 300]


@pytest.mark.parametrize(
    ("first", "second", "started"),
    [
        ((), (), ["a"]),
        ((running(),), (), []),
        ((ended(),), (), ["b"]),
        ((ended(),), (running(),), []),
        ((ended(),), (ended(),), ["c", "d"]),
        ((ended(code=1),), (), []),
    ],
)
def test_init_containers_run_one_by_one_before_the_main_containers(first: Any, second: Any, started: list[str]) -> None:
    pod = containers("Never", "c", "d", init=("a", "b"))
    plan = pod_lifecycle.plan(pod, {"a": first, "b": second, "c": (), "d": ()}, NOW)
    assert [action.container for action in plan.actions] == started


@pytest.mark.parametrize(
    ("policy", "init", "main", "phase"),
    [
        ("Never", (), ((), ()), "Pending"),
        ("Never", (running(),), ((), ()), "Pending"),
        ("Never", (ended(code=1),), ((), ()), "Failed"),
        ("Always", (ended(code=1),), ((), ()), "Pending"),
        ("Always", (ended(),), ((beginning(),), ()), "Pending"),
        ("Never", (ended(),), ((running(),), ()), "Running"),
        ("Never", (ended(),), ((ended(),), (running(),)), "Running"),
        ("Never", (ended(),), ((ended(),), (ended(),)), "Succeeded"),
        ("Never", (ended(),), ((ended(),), (ended(code=1),)), "Failed"),
        ("OnFailure", (ended(),), ((ended(),), (ended(code=1),)), "Running"),
        ("OnFailure", (ended(),), ((ended(),), (ended(),)), "Succeeded"),
        ("Always", (ended(),), ((ended(),), (ended(),)), "Running"),
    ],
)
def test_outcome_returns_the_phase_of_the_pod(policy: RestartPolicy, init: Any, main: Any, phase: str) -> None:
    pod = containers(policy, "c", "d", init=("a",))
    assert pod_lifecycle.outcome(pod, {"a": init, "c": main[0], "d": main[1]}) == phase


def test_a_terminating_container_gets_one_sigterm_and_a_kill_after_its_grace_period() -> None:
    pod, run = containers("Always", "c", "d"), running()
    histories = {"c": (run,), "d": (ended(),)}
    asked = pod_lifecycle.plan(pod, histories, NOW, Termination(30, NOW))
    assert asked == ActionPlan((TerminateContainer("c", run),), NOW + 30)
    told = Termination(30, NOW, frozenset({("c", 0)}))
    assert pod_lifecycle.plan(pod, histories, NOW + 29, told) == ActionPlan((), NOW + 30)
    assert pod_lifecycle.plan(pod, histories, NOW + 30, told).actions == (KillContainer("c", run),)
    over = pod_lifecycle.plan(pod, {"c": (ended(code=1),), "d": (ended(),)}, NOW + 31, told)
    assert over == ActionPlan((), math.inf)


HISTORY = st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1000), st.floats(0, 1000)), max_size=6)


@given(st.sampled_from(["Always", "OnFailure", "Never"]), HISTORY, st.booleans())
def test_a_pod_never_hangs_and_never_runs_a_container_twice_at_once(
    policy: RestartPolicy, drawn: list[tuple[int, float, float]], alive: bool
) -> None:
    runs = [ended(index, code, ago, lasted) for index, (code, ago, lasted) in enumerate(drawn)]
    history = (*runs, running(len(runs))) if alive else tuple(runs)
    pod = containers(policy)
    plan = pod_lifecycle.plan(pod, {"c": history}, NOW)
    if alive or pod_lifecycle.outcome(pod, {"c": history}) in ("Succeeded", "Failed"):
        assert plan == ActionPlan()
    else:
        assert plan.actions == (StartContainer("c", len(runs)),) or NOW < plan.wake_at <= NOW + 300


def status(policy: RestartPolicy, *history: Run, before: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "any"}]}
    view = PodState(containers(policy), spec, {"c": history}, {}, {}, given.pop("stopping", False), **given)
    return pod_status.running_status(view, before or {}, NOW)


@pytest.mark.parametrize(
    ("policy", "history", "phase", "state", "last", "restarts"),
    [
        ("Never", (), "Pending", "waiting", {}, 0),
        ("Never", (running(),), "Running", "running", {}, 0),
        ("Never", (ended(),), "Succeeded", "terminated", {}, 0),
        ("Never", (ended(code=2),), "Failed", "terminated", {}, 0),
        ("Always", (ended(0, 1), running(1)), "Running", "running", 1, 1),
        ("Always", (ended(0, 1), ended(1, 2, ago=1)), "Running", "waiting", 2, 1),
        ("OnFailure", (ended(0, 1), ended(1, 0)), "Succeeded", "terminated", 1, 1),
    ],
)
def test_the_container_status_has_the_state_last_state_and_restart_count(
    policy: RestartPolicy, history: tuple[Run, ...], phase: str, state: str, last: Any, restarts: int
) -> None:
    found = status(policy, *history)
    (container,) = found["containerStatuses"]
    assert found["phase"] == phase
    assert list(container["state"]) == [state]
    assert container["restartCount"] == restarts
    assert (container["lastState"].get("terminated") or {}).get("exitCode", {}) == last


def test_a_failure_reason_is_reported_once_all_containers_have_ended() -> None:
    failure = PodFailure("DeadlineExceeded", "too long")
    assert status("Never", running(), stopping=True, failure=failure)["phase"] == "Running"
    found = status("Never", ended(code=0), stopping=True, failure=failure)
    assert (found["phase"], found["reason"], found["message"]) == ("Failed", "DeadlineExceeded", "too long")


def test_a_stopped_pod_with_policy_always_has_a_final_phase() -> None:
    assert status("Always", ended(code=0), stopping=True)["phase"] == "Succeeded"
    assert status("Always", ended(code=143), stopping=True)["phase"] == "Failed"


def test_unchanged_and_foreign_conditions_keep_their_transition_time() -> None:
    foreign = {"type": "example.com/gate", "status": "True"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    found = status("Never", running(), before={"conditions": [foreign, ready]})
    conditions = {each["type"]: each for each in found["conditions"]}
    assert conditions["example.com/gate"] == foreign
    assert conditions["Ready"]["lastTransitionTime"] == "2020-01-01T00:00:00Z"
    later = status("Never", ended(), before=found)
    ready = next(each for each in later["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["lastTransitionTime"]) == ("False", timestamps.format_time(NOW))


def test_a_status_without_changes_does_not_differ() -> None:
    first = status("Never", running())
    assert not differs(status("Never", running(), before=first), first)
