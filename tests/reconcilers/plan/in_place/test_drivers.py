"""The driver of each pod, as the pod, the settings and the state of its node decide."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crds import labels, timestamps
from crds.api_resources import RECREATE_REQUESTS
from reconcilers.plan.in_place import interruptions
from reconcilers.plan.in_place.driver import RestartProgress
from reconcilers.plan.in_place.drivers import AHEAD, Drivers, can_restart_any, find_drivers
from reconcilers.plan.in_place.kruise import BACKS_OFF
from reconcilers.plan.in_place.restarts import Restarts, RestartStep
from reconcilers.plan.pod_deletion import PodDeletion
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreateObject, DeleteObject, DeletePods, PatchPodMetadata
from reconcilers.views import containers, pod_view, recreate_request
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView
from tests.support.reconcilers import recreate_requests
from tests.support.reconcilers.builders import NOW, job, pod, status, task

T = NOW.timestamp()
NOW_TEXT = timestamps.format_time(T)
PLAIN = pod()
AGENT = replace(PLAIN, has_restart_agent=True)
KRUISE = replace(PLAIN, self_healing=True)
ONCE = {"restarts": 1, "counted_restarts": 1}
SECOND = job(status=status("Admitted", restartGeneration=1))
SERVES = job({"Master": task(restartPolicy="Always")}, status("Admitted", restartGeneration=1))


def drivers(setting: Any, *pods: PodView, of: Any = SECOND, requests: tuple[RecreateView, ...] = ()) -> Drivers:
    settings = ReconcileSettings(in_place=setting, served=frozenset({RECREATE_REQUESTS}))
    return find_drivers(of, pods, requests, settings, T)


def step(setting: Any, *pods: PodView, requests: tuple[RecreateView, ...] = (), pause: float = 0.0) -> RestartStep:
    found = drivers(setting, *pods, requests=requests)
    deletion = PodDeletion(T, 60.0)
    return Restarts(job=SECOND, pods=pods, leads=frozenset(), deletion=deletion, drivers=found, pause=pause).job_step()


def request(pod: PodView = KRUISE, **fields: Any) -> RecreateView:
    return recreate_requests.view(pod, **fields)


def texts(found: RestartStep) -> list[str]:
    """Return the requests that the pods get."""
    patches = (each for each in found.actions if isinstance(each, PatchPodMetadata))
    return [text for one in patches if (text := one.metadata.get("annotations", {}).get(labels.RESTART_CONTAINERS))]


@pytest.mark.parametrize(
    ("setting", "subject", "expected"),
    [
        ("recreate", AGENT, "none"),
        ("recreate", KRUISE, "none"),
        ("local", PLAIN, "local"),
        ("auto", AGENT, "agent"),
        ("auto", KRUISE, "kruise"),
        ("auto", PLAIN, "none"),
        ("kubernetes", AGENT, "agent"),
        ("kubernetes", KRUISE, "none"),
        ("kruise", AGENT, "agent"),
        ("kruise", KRUISE, "kruise"),
        ("kruise", PLAIN, "none"),
        # A new pod is faster than a restart for which the node would have to wait.
        ("auto", replace(KRUISE, **ONCE, ended=T - 599), "none"),
        ("kruise", replace(KRUISE, **ONCE, ended=T - 599), "none"),
        ("auto", replace(KRUISE, **ONCE, ended=T - 600), "kruise"),
        ("auto", replace(KRUISE, problem="CrashLoopBackOff: back-off 10s"), "none"),
        ("auto", replace(AGENT, **ONCE, ended=T - 1), "agent"),
        ("auto", replace(AGENT, problem="CreateContainerError: no"), "none"),
    ],
)
def test_driver_depends_on_setting_and_pod(setting: Any, subject: PodView, expected: str) -> None:
    found = drivers(setting, subject)
    assert found.can_restart(subject) == (expected != "none")
    if expected != "none":
        assert found.of(subject) is getattr(found, expected)


def test_owner_who_wants_it_in_place_waits_for_the_back_off() -> None:
    backs_off = replace(KRUISE, **ONCE, ended=T - 5)
    assert drivers("auto", backs_off).can_restart(backs_off, explicit=True)
    crashes = replace(backs_off, problem="CrashLoopBackOff: back-off 10s")
    assert not drivers("auto", crashes).can_restart(crashes, explicit=True)


def test_pod_that_is_always_restarted_needs_no_other_policy_for_kruise() -> None:
    assert drivers("auto", PLAIN, of=SERVES).can_restart(PLAIN)


def test_pods_of_one_job_have_their_own_drivers() -> None:
    other, old = replace(KRUISE, name="digits-worker-0", uid="b"), replace(PLAIN, name="digits-worker-1", uid="c")
    found = step("auto", AGENT, other, old)
    assert texts(found) == ["1/0"]
    assert [each.manifest["spec"]["podName"] for each in found.actions if isinstance(each, CreateObject)] == [
        "digits-worker-0"
    ]
    assert [each.pods for each in found.actions if isinstance(each, DeletePods)] == [(old,)]


def test_pod_whose_kubelet_counts_anew_is_requested_once() -> None:
    reset = replace(KRUISE, restarts=0, counted_restarts=1)
    first = step("auto", reset)
    (made,) = (each.manifest for each in first.actions if isinstance(each, CreateObject))
    there = recreate_request.trim({**made, "metadata": {**made["metadata"], "uid": "r", "creationTimestamp": NOW_TEXT}})
    again = step("auto", reset, requests=(there,))
    assert not [each for each in again.actions if isinstance(each, CreateObject)]


@pytest.mark.parametrize(
    ("setting", "subject", "served", "expected"),
    [
        ("auto", KRUISE, True, True),
        ("auto", KRUISE, False, False),
        ("auto", AGENT, False, True),
        ("kubernetes", KRUISE, True, False),
        ("recreate", AGENT, True, False),
        ("local", PLAIN, False, True),
    ],
)
def test_job_runs_on_while_any_pod_can_be_restarted(
    setting: Any, subject: PodView, served: bool, expected: bool
) -> None:
    settings = ReconcileSettings(in_place=setting, served=frozenset({RECREATE_REQUESTS} if served else ()))
    assert can_restart_any(SECOND, (subject,), settings) is expected


class TestAgent:
    ASKED = replace(AGENT, restarts=2, requested_restart="1/2", restart_requested_at=T - 10)

    def test_request_has_the_number_of_restarts_until_then(self) -> None:
        (mark,) = step("auto", replace(AGENT, restarts=2)).actions
        assert isinstance(mark, PatchPodMetadata)
        notes = {labels.RESTART_CONTAINERS: "1/2", labels.RESTART_REQUESTED_AT: "2026-01-02T03:04:05Z"}
        assert mark.metadata == {"annotations": notes}

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({}, "InProgress"),
            ({"restarts": 3}, "Done"),
            ({"restarts": 3, "problem": "RestartingAllContainers"}, "InProgress"),
            ({"restarts": 3, "phase": "Pending", "problem": "PodInitializing"}, "InProgress"),
            ({"restarts": 3, "requested_restart": "0/2"}, "NotAsked"),
            ({"requested_restart": "0/2"}, "InProgress"),  # the agent may take a second request for the first request
            ({"restart_requested_at": T - 61}, "Failed"),
            ({"restart_requested_at": None}, "NotAsked"),
            ({"problem": "ErrImagePull: not found"}, "Failed"),
        ],
    )
    def test_restart_is_done_once_the_main_container_runs_again(self, fields: dict[str, Any], expected: str) -> None:
        subject = replace(self.ASKED, **fields)
        assert drivers("auto", subject).progress(subject, "1").state == expected

    def test_only_an_unfinished_restart_of_a_single_pod_is_one(self) -> None:
        single = replace(self.ASKED, restart=1, requested_restart="1000000000000007/2")
        found = drivers("auto", single)
        assert found.progress(single, "").state == "InProgress"
        assert found.progress(replace(single, restarts=3), "").state == "NotAsked"
        starts = replace(single, restarts=3, phase="Pending", problem="PodInitializing")
        assert found.progress(starts, "").state == "InProgress"
        assert found.progress(replace(starts, problem="ErrImagePull: gone"), "").why == "ErrImagePull: gone"

    @pytest.mark.parametrize(
        ("fields", "goes_on"),
        [
            ({"phase": "Failed", "exit_code": 137, "has_running_containers": True}, True),
            ({"phase": "Failed", "reason": interruptions.INTERRUPTED, "has_running_containers": True}, True),
            ({"phase": "Pending", "restarts": 3}, True),  # the init containers of the pod run again
            ({"phase": "Failed", "exit_code": 3}, False),
            ({"phase": "Failed", "reason": interruptions.INTERRUPTED}, False),
            ({"phase": "Failed", "exit_code": 3, "has_running_containers": True, "restarts": 3}, False),
        ],
    )
    def test_container_that_ended_may_be_about_to_start_again(self, fields: dict[str, Any], goes_on: bool) -> None:
        ended = replace(self.ASKED, **fields)
        found = step("auto", ended)
        assert [type(each) for each in found.actions] == ([] if goes_on else [DeletePods])
        assert (found.requeue_after == 50.0) is goes_on

    def test_restart_that_is_under_way_is_followed_whatever_the_setting(self) -> None:
        assert step("recreate", self.ASKED).actions == ()
        done = step("recreate", replace(self.ASKED, restarts=3))
        assert [each.metadata for each in done.actions if isinstance(each, PatchPodMetadata)] == [
            {"labels": {labels.RESTART: "1"}}
        ]


def recorded(name: str) -> list[dict[str, Any]]:
    """Return the objects of one pod that a watcher received while the pod was restarted and then deleted."""
    path = Path(__file__).parents[2] / "views" / "recorded_ends" / f"{name}.json"
    return [each["object"] for each in json.loads(path.read_text())]


def test_restart_by_a_real_kubelet_is_followed_to_its_end() -> None:
    states: list[str] = []
    for manifest in recorded("restarted-by-rule"):
        notes = manifest["metadata"]["annotations"]
        asks = notes[labels.RESTART_CONTAINERS] == "1"
        notes |= {labels.RESTART_CONTAINERS: "1/0" if asks else "", labels.RESTART_REQUESTED_AT: "2026-01-02T03:04:05Z"}
        manifest["spec"]["initContainers"][0]["name"] = containers.RESTART_AGENT
        subject = pod_view.trim(manifest)
        if not (subject.deleting or subject.finished):
            states.append(drivers("auto", subject).progress(subject, "1").state)
            assert subject.started or not asks or interruptions.may_go_on(subject)
    first, last = states.index("InProgress"), states.index("Done")
    assert set(states[:first]) == {"NotAsked"}
    assert (set(states[first:last]), set(states[last:])) == ({"InProgress"}, {"Done"})


class TestKruise:
    def test_open_request_is_deleted_before_another_is_created(self) -> None:
        first = request(name="digits-master-0-1000000000000007", generation=0)
        found = step("kruise", KRUISE, requests=(first,)).actions
        assert [type(each) for each in found] == [DeleteObject, CreateObject]
        over = step("kruise", KRUISE, requests=(replace(first, verdict="Failed"),)).actions
        assert [type(each) for each in over] == [CreateObject]

    def test_container_that_has_ended_by_itself_is_not_asked_for(self) -> None:
        template = {"spec": {"containers": [{"name": name, "image": "i"} for name in ("log", "torch", "once")]}}
        many = job({"Master": task() | {"template": template}}, status("Admitted", restartGeneration=1))
        subject = replace(KRUISE, ended_containers="once")
        (made,) = drivers("kruise", subject, of=many).kruise.ask((subject,), "1")
        assert isinstance(made, CreateObject)
        assert made.manifest["spec"]["containers"] == [{"name": "torch"}, {"name": "log"}]

    def test_node_whose_daemon_has_not_answered_is_not_asked_again(self) -> None:
        here, there = replace(KRUISE, node="n1"), replace(KRUISE, name="digits-worker-0", uid="b", node="n1")
        elsewhere = replace(KRUISE, name="digits-worker-1", uid="c", node="n2")
        found = step("kruise", here, there, elsewhere, requests=(request(created=T - 61),))
        assert [each.pods for each in found.actions if isinstance(each, DeletePods)] == [(there, here)]
        assert [each.manifest["spec"]["podName"] for each in found.actions if isinstance(each, CreateObject)] == [
            "digits-worker-1"
        ]
        assert found.failed == (
            (there, "Kruise's daemon on node n1 has not answered"),
            (here, "not done within 60 s"),
        )

    @pytest.mark.parametrize(
        ("fields", "requests", "expected"),
        [
            ({"problem": "Error: exit code 1", "ended": T - 1}, (), RestartProgress("InProgress", remaining=59.0)),
            ({}, (), RestartProgress("Done")),
            (
                {"problem": "Error: exit code 1", "ended": T - 1, "restarts": 2},
                (),
                RestartProgress("Failed", BACKS_OFF),
            ),
            ({"counted_restarts": 1}, (), RestartProgress("NotAsked")),
            ({"self_healing": False}, (), RestartProgress("NotAsked")),
            # The owner requested the restart, before the failure that restarts the job.
            ({}, (request(generation=0, verdict="Done"),), RestartProgress("NotAsked")),
        ],
    )
    def test_pod_that_its_node_restarts_by_itself_is_left_to_that(
        self, fields: dict[str, Any], requests: tuple[RecreateView, ...], expected: RestartProgress
    ) -> None:
        subject = replace(KRUISE, **({"restarts": 1} | fields))
        assert drivers("kruise", subject, requests=requests).progress_with_job(subject, "1") == expected

    def test_pod_that_would_back_off_is_replaced_and_the_event_says_why(self) -> None:
        found = step("auto", replace(KRUISE, **ONCE, ended=T - 5))
        assert [type(each) for each in found.actions] == [DeletePods]
        assert found.failed[0][1] == BACKS_OFF

    @pytest.mark.parametrize("problem", ["ErrImagePull: gone", "ImagePullBackOff: gone"])
    def test_restart_without_its_image_is_given_up_in_the_words_of_the_node(self, problem: str) -> None:
        found = step("kruise", replace(KRUISE, problem=problem), requests=(request(),))
        assert [why for _, why in found.failed] == [problem]

    def test_container_that_ended_again_is_not_waited_for(self) -> None:
        again = replace(KRUISE, restarts=2, problem="Error: exit code 1")
        found = step("kruise", again, requests=(request(verdict="Done"),))
        assert [why for _, why in found.failed] == ["its main container has ended again: Error: exit code 1"]
        killed = replace(again, restarts=1)
        assert step("kruise", killed, requests=(request(),)).failed == ()


@pytest.mark.parametrize(
    ("setting", "subject", "ahead"), [("auto", AGENT, AHEAD), ("auto", KRUISE, 0.0), ("local", PLAIN, 0.0)]
)
def test_healthy_pod_is_asked_so_that_it_starts_when_the_back_off_is_over(
    setting: Any, subject: PodView, ahead: float
) -> None:
    early = step(setting, subject, pause=ahead + 7.5)
    assert (early.actions, early.requeue_after) == ((), 7.5)
    assert step(setting, subject, pause=ahead).actions


def test_new_pods_wait_for_the_end_of_runs_and_not_for_the_next_ones() -> None:
    asked = replace(AGENT, requested_restart="1/0", restart_requested_at=T)
    assert step("auto", asked).blocked, "the run of the pod goes on"
    between = replace(asked, phase="Pending", restarts=1)
    found = step("auto", between)
    assert (found.blocked, found.done, found.actions) == (False, False, ())
    assert step("auto", between, replace(AGENT, name="other", uid="other")).blocked
    assert step("auto", between, replace(AGENT, name="other", uid="other", deleting=True)).blocked
