"""The end of a pod is a success only if no object of the pod shows that somebody asked for the end. This rule holds
whatever objects were seen.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds import excerpts, timestamps
from reconcilers.plan import failures
from reconcilers.views import pod_end, pod_history, pod_result, pod_view
from reconcilers.views.pod_view import PodView
from tests.reconcilers.views.test_pod_view import manifest
from tests.support.reconcilers.builders import KEY

UP = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
GRACE = 30


def at(second: int) -> str:
    return timestamps.format_time(1_767_000_000 + second)


def pod(phase: str = "Running", state: dict[str, Any] = UP, *, policy: str = "Never", **status: Any) -> dict[str, Any]:
    main = {"name": "torch", "state": state, **status.pop("main", {})}
    made = manifest(phase, **{"containerStatuses": [main], **status})
    made["spec"] |= {"restartPolicy": policy, "terminationGracePeriodSeconds": GRACE}
    return made


def ended(second: int, code: int = 0, message: str = "", reason: str = "") -> dict[str, Any]:
    said = reason or ("Completed" if code == 0 else "Error")
    return {"terminated": {"exitCode": code, "reason": said, "finishedAt": at(second), "message": message}}


def deleted(body: dict[str, Any], asked: int, grace: int = GRACE) -> dict[str, Any]:
    made = deepcopy(body)
    made["metadata"] |= {"deletionTimestamp": at(asked + grace), "deletionGracePeriodSeconds": grace}
    return made


def see(*bodies: dict[str, Any]) -> list[PodView]:
    """Return the views of a worker that sees these objects one after the other."""
    seen: list[PodView] = []
    for body in bodies:
        view = pod_view.trim(body)
        seen.append(pod_history.remember(seen[-1], view) if seen else view)
    return seen


def end_of_kubelet(end: int, asked: int, grace: int = GRACE) -> list[dict[str, Any]]:
    """Return the objects of a pod that exits with 0 at `end` and whose deletion is requested at `asked`."""
    before = [pod(), *([pod(state=ended(end)), pod("Succeeded", ended(end))] if end < asked else [])]
    after = [
        deleted(pod(), asked, grace) if end >= asked else deleted(before[-1], asked, grace),
        deleted(pod(state=ended(end)), asked, grace),
        deleted(pod("Succeeded", ended(end)), asked, grace),
        deleted(pod("Succeeded", ended(end)), end + 2, 0),
    ]
    return [*before, *after]


@given(
    end=st.integers(0, 20),
    asked=st.integers(0, 20),
    earlier=st.none() | st.integers(0, 5),
    grace=st.sampled_from([5, GRACE, 60]),
    data=st.data(),
)
def test_pod_that_was_asked_to_end_is_no_success_in_any_order_of_its_objects(
    end: int, asked: int, earlier: int | None, grace: int, data: st.DataObject
) -> None:
    objects = end_of_kubelet(end, asked, grace)
    first = asked
    if earlier is not None and earlier < asked and end >= asked and grace != GRACE:
        objects.insert(1, deleted(pod(), earlier, grace + 1))
        first = earlier
    seen = data.draw(st.lists(st.sampled_from(objects), min_size=1, max_size=12))
    successes = [view for view in see(*seen) if view.phase == "Succeeded"]
    if end >= first:
        assert not successes
    elif grace == GRACE:
        assert see(*objects)[-1].phase == "Succeeded", "an end of the pod's own stays a success"


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([deleted(pod("Succeeded", ended(3)), 4, 0)], "Failed", id="only the last deletion of a kubelet"),
        pytest.param([deleted(pod("Succeeded", ended(3)), 4)], "Succeeded", id="it ended a second before"),
        pytest.param([deleted(pod("Succeeded", ended(4)), 4)], "Failed", id="it ended in the same second"),
        pytest.param([deleted(pod("Succeeded", ended(3)), 4, 5)], "Failed", id="an earlier request may have come"),
        pytest.param(
            [deleted(pod(state=ended(3)), 4), deleted(pod("Failed", ended(3)), 5, 0)],
            "Succeeded",
            id="its sidecar ran until it was deleted",
        ),
        pytest.param(
            [pod("Succeeded", ended(3)), deleted(pod("Succeeded", ended(3)), 9, 0)], "Succeeded", id="seen before"
        ),
        pytest.param(
            [pod(state=ended(3)), deleted(pod("Succeeded", ended(3)), 5, 0)],
            "Succeeded",
            id="seen before, beside a sidecar",
        ),
        pytest.param([pod("Succeeded", ended(3, message=f"x\n{pod_result.MARK}\n"))], "Failed", id="marked"),
        pytest.param(
            [pod(containerStatuses=None), pod(state=ended(3)), pod("Succeeded", ended(3))],
            "Failed",
            id="unreported",
        ),
        pytest.param(
            [pod(containerStatuses=None), pod(), pod("Succeeded", ended(3))],
            "Succeeded",
            id="reported again",
        ),
    ],
)
def test_success_is_seen_through_what_asked_for_the_end(objects: Sequence[dict[str, Any]], expected: str) -> None:
    assert see(*objects)[-1].phase == expected


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
@pytest.mark.parametrize(
    ("reason", "since", "expected"),
    [
        ("EvictionByEvictionAPI", 3, "Failed"),
        ("EvictionByEvictionAPI", 2, "Failed"),
        ("EvictionByEvictionAPI", 4, "Succeeded"),
        ("EvictionByEvictionAPI", None, "Failed"),
        ("TerminationByKubelet", 4 + GRACE, "Succeeded"),
        ("TerminationByKubelet", 3 + GRACE, "Failed"),  # a kubelet sets this condition when it has ended the pod
    ],
)
def test_disruption_is_asked_for_in_every_phase(phase: str, reason: str, since: int | None, expected: str) -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    conditions = [target if since is None else target | {"lastTransitionTime": at(since)}]
    (view,) = see(pod(phase, ended(3), conditions=conditions))
    assert view.phase == expected
    if expected == "Failed":
        assert failures.classify("Never", view) == "Disruption"


def test_end_that_was_not_its_own_is_told_and_classified() -> None:
    (stopped,) = see(pod("Succeeded", ended(3, message=pod_result.MARK)))
    explanation = excerpts.excerpt(pod_end.EXPLANATION, pod_end.LONGEST_MESSAGE)
    assert (stopped.reason, stopped.message) == (pod_end.STOPPED, explanation)
    policies = ("Never", "OnFailure", "ExitCode")
    assert [failures.classify(policy, stopped) for policy in policies] == ["Permanent", "Retryable", "Retryable"]
    rejected = see(pod(containerStatuses=None), pod(state=ended(3, 137)))[-1]
    assert failures.classify("Never", rejected) == "Disruption"


@pytest.mark.parametrize(
    ("objects", "failed", "restarts"),
    [
        ([pod(policy="OnFailure")], False, 0),
        ([pod(policy="OnFailure", state=ended(3, 2))], True, 1),
        ([pod(policy="OnFailure", state=ended(3, 0))], False, 0),
        (
            [
                pod(policy="OnFailure", state=ended(3, 2)),
                pod(
                    policy="OnFailure",
                    state={"waiting": {"reason": "CrashLoopBackOff"}},
                    main={"lastState": ended(3, 2), "restartCount": 0},
                ),
            ],
            True,
            1,
        ),
        ([pod(policy="OnFailure", main={"lastState": ended(3, 2), "restartCount": 1})], True, 1),
    ],
)
def test_failure_counts_once_from_the_exit_to_the_next_run(
    objects: Sequence[dict[str, Any]], failed: bool, restarts: int
) -> None:
    view = see(*objects)[-1]
    assert (view.restarted_by_node, view.restarts) == (failed, restarts)
    if failed:
        assert (view.exit_code, view.ended) == (2, 1_767_000_003.0)


@pytest.mark.parametrize(
    ("state", "waits"),
    [
        (ended(3), True),
        (ended(3, 137), True),
        (ended(3, 143), True),
        (ended(3, 137, reason="OOMKilled"), False),
        (ended(3, 1), False),
        (UP, False),
    ],
)
@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_end_that_may_be_the_deed_of_the_node_waits_for_the_final_phase(
    state: dict[str, Any], policy: str, waits: bool
) -> None:
    view = see(pod(policy=policy, state=state))[-1]
    start = 1_767_000_003.0
    (early,), remaining = pod_history.settle((view,), start + 0.5)
    (late,), no_more = pod_history.settle((view,), start + pod_history.SETTLING)
    assert remaining == (1.5 if waits else None)
    assert (early.finished or early.restarted_by_node) is (state is not UP and not waits)
    assert (late, no_more) == (view, None)
    final = see(pod(policy=policy, state=state), pod("Failed", state, policy=policy, reason="NodeAffinity"))[-1]
    if waits:
        assert failures.classify("Never", final) == "Disruption"


def test_history_of_another_pod_of_the_same_name_does_not_count() -> None:
    other = deleted(pod("Succeeded", ended(3)), 1)
    other["metadata"]["uid"] = "another"
    assert see(other, pod("Succeeded", ended(3)))[-1].phase == "Succeeded"
    assert see(other)[0].job_uid == KEY.uid
