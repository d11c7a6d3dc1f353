"""The plan for failed, lost and restarted pods, and the way in which pods are deleted."""

from dataclasses import replace
from typing import Any

import pytest

from crds import labels
from crds.api_resources import RECREATE_REQUESTS, Resource
from reconcilers.plan import restart_counts
from reconcilers.plan.plan import plan
from reconcilers.plan.pod_deletion import PodDeletion
from reconcilers.pods import node_affinity
from reconcilers.pods.pod_manifests import set_restart_policy
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Blocker, CreatePods, DeletePods, EmitEvent, PatchPodMetadata, Plan, WriteStatus
from reconcilers.views import node_view
from reconcilers.views.node_view import NodeHealth, NodeView
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import NOW, UNDER_MASTER, all_pods, job, observe, pod, status, task

T = NOW.timestamp()
MASTER, WORKER, OTHER = all_pods()
LOCAL = ReconcileSettings(in_place="local")


def decide(of: Any, *pods: PodView, settings: ReconcileSettings = LOCAL, **fields: Any) -> Plan:
    return plan(replace(observe(of, *pods), **fields), settings, NOW)


def kinds(found: Plan) -> list[str]:
    return [type(each).__name__ for each in found.actions]


def written(found: Plan) -> dict[str, Any]:
    changes = [each.change["status"] for each in found.actions if isinstance(each, WriteStatus)]
    return dict(changes[0]) if changes else {}


def told(found: Plan) -> list[str]:
    return [each.reason for each in found.actions if isinstance(each, EmitEvent)]


def deleted(found: Plan, at_once: bool | None = None) -> list[str]:
    actions = (each for each in found.actions if isinstance(each, DeletePods))
    return [each.name for action in actions if at_once in (None, action.at_once) for each in action.pods]


def marked(found: Plan) -> list[str]:
    return [each.name for action in found.actions if isinstance(action, PatchPodMetadata) for each in action.pods]


RUNNING = job(status=status("Running"))


def test_replaced_pod_does_not_excuse_later_loss() -> None:
    counts = {"Master": {"active": 1, "ready": 1}, "Worker": {"active": 2, "ready": 2}}
    before = status("Running", taskStatuses=counts, replacing=["the-old-one"])
    found = decide(job(status=before), *all_pods())
    assert (kinds(found), written(found)) == (["WriteStatus"], {"replacing": []})
    assert decide(job(status=before | {"replacing": []}), *all_pods()) == Plan()
    assert written(decide(job(status=before | {"replacing": []}), MASTER, OTHER))["disruptions"] == 1


class TestOthersBesideTheMainContainer:
    """The main container has ended for good, and the other containers still run."""

    def test_success_of_main_container_completes_job_and_deletes_pod(self) -> None:
        done = replace(MASTER, phase="Succeeded", has_running_containers=True)
        found = decide(job(status=status("Running", admission=UNDER_MASTER)), done, WORKER, OTHER)
        assert written(found)["phase"] == "Succeeded"
        assert deleted(found) == ["digits-master-0", "digits-worker-0", "digits-worker-1"]

    def test_failure_of_main_container_replaces_pod(self) -> None:
        lost = replace(WORKER, phase="Failed", exit_code=137, has_running_containers=True)
        found = decide(RUNNING, MASTER, lost, OTHER)
        assert (written(found)["restartCount"], deleted(found)) == (1, ["digits-worker-0"])

    def test_completed_pod_is_deleted_before_next_stage_is_created(self) -> None:
        tasks = {"Prepare": task(), "Worker": task(dependsOn=[{"taskType": "Prepare", "phase": "Succeeded"}])}
        prepared = pod("Prepare", phase="Succeeded", has_running_containers=True)
        found = decide(job(tasks, status("Running")), prepared)
        assert (kinds(found), deleted(found)) == (["WriteStatus", "DeletePods"], ["digits-prepare-0"])
        begun = job(tasks, status("Running", stages=written(found)["stages"]))
        assert (
            kinds(decide(begun, replace(prepared, phase="Running", has_running_containers=False, deleting=True))) == []
        )
        assert kinds(decide(begun)) == kinds(decide(begun, replace(prepared, has_running_containers=False)))
        assert "CreatePods" in kinds(decide(begun))


class TestByTheirNodes:
    def test_container_restarted_by_its_node_is_counted_before_it_is_marked(self) -> None:
        again = replace(WORKER, self_healing=True, restarts=1, exit_code=137, reason="Error")
        elastic = job(status=status("Running"), restartScope="Task")
        found = decide(elastic, MASTER, again, OTHER)
        assert kinds(found) == ["WriteStatus", "EmitEvent", "PatchPodMetadata"]
        assert (written(found)["restartCount"], written(found)["replacing"]) == (1, ["worker-0/1"])
        counted = job(status=status("Running", replacing=["worker-0/1"]), restartScope="Task")
        assert marked(decide(counted, MASTER, again, OTHER)) == ["digits-worker-0"]
        assert written(decide(counted, MASTER, replace(again, counted_restarts=1), OTHER))["replacing"] == []

    def test_handled_replacements_are_removed_with_next_status_write(self) -> None:
        before = job(status=status("Running", replacing=["gone", "worker-1/1", "worker-1/2"]), restartScope="Task")
        found = decide(before, MASTER, replace(WORKER, phase="Failed", exit_code=1), replace(OTHER, counted_restarts=1))
        assert written(found)["replacing"] == ["worker-1/2", "worker-0"]
        whole = job(status=status("Running", replacing=["worker-1"]))
        assert written(decide(whole, MASTER, replace(WORKER, phase="Failed", exit_code=1)))["replacing"] == []


class TestInPlace:
    def test_failure_is_counted_before_other_pods_restart_in_place(self) -> None:
        found = decide(RUNNING, MASTER, replace(WORKER, phase="Failed", exit_code=137), OTHER)
        assert kinds(found) == ["WriteStatus", "EmitEvent", "PatchPodMetadata", "DeletePods"]
        assert (written(found)["restartCount"], written(found)["restartGeneration"]) == (1, 1)
        assert (deleted(found), marked(found)) == (["digits-worker-0"], ["digits-master-0", "digits-worker-1"])

    def test_event_contains_number_of_restart_or_disruption(self) -> None:
        again = job(status=status("Running", restartCount=2, disruptions=4), backoffLimit=5)
        failed = replace(WORKER, phase="Failed", exit_code=137)
        for pods, number in (((failed,), "restart 3 of 5: "), ((replace(WORKER, deleting=True),), "disruption 5: ")):
            (said, *_) = (each for each in decide(again, MASTER, *pods, OTHER).actions if isinstance(each, EmitEvent))
            assert said.message.startswith(number)

    def test_new_pods_wait_until_all_pods_are_restarted(self) -> None:
        counted = job(status=status("Admitted", restartCount=1, restartGeneration=1))
        waiting = replace(OTHER, requested_restart="1", restart_requested_at=T - 1)
        found = decide(counted, replace(MASTER, restart=1), waiting)
        assert found == Plan(requeue_after=59.0)
        done = decide(counted, replace(MASTER, restart=1), replace(waiting, completed_restart="1"))
        assert (marked(done), told(done)) == (["digits-worker-1"], ["RestartedInPlace"])
        assert any(isinstance(each, CreatePods) for each in decide(counted, *all_pods(restart=1)[::2]).actions)

    def test_late_restart_in_place_replaces_pod_and_emits_event(self) -> None:
        counted = job(status=status("Admitted", restartGeneration=1))
        found = decide(counted, replace(MASTER, requested_restart="1", restart_requested_at=T - 61))
        assert (deleted(found), told(found)) == (["digits-master-0"], ["NotRestartedInPlace"])

    @pytest.mark.parametrize(
        ("served", "blocker"),
        [
            (frozenset[Resource](), None),
            (frozenset({RECREATE_REQUESTS}), Blocker("ContainerRecreateRequestRefused", "not active")),
            (frozenset({RECREATE_REQUESTS}), Blocker("ContainerRecreateRequestMissing", "install it")),
        ],
    )
    def test_pods_are_replaced_when_recreate_requests_are_unavailable(
        self, served: frozenset[Resource], blocker: Blocker | None
    ) -> None:
        settings = ReconcileSettings(in_place="kruise", served=served)
        counted = job(status=status("Admitted", restartGeneration=1))
        found = decide(counted, *all_pods(), settings=settings, obstacle=blocker)
        assert len(deleted(found)) == 3
        assert told(found) == (["NotRestartedInPlace"] if blocker else [])


def ask(text: str, scope: str = "Job", **fields: Any) -> Any:
    return job(status=status("Running", **fields), annotations={labels.RESTART_REQUEST: text}, restartScope=scope)


class TestRequests:
    def test_request_restarts_whole_job_once(self) -> None:
        found = decide(ask('{"id": "a"}'), *all_pods())
        change = written(found)
        assert (change["restartGeneration"], change["restartRequest"], change["phase"]) == (1, "a", "Admitted")
        assert change.keys().isdisjoint({"restartCount", "disruptions", "recreateGeneration"})
        assert (marked(found), told(found)) == ([each.name for each in all_pods()], ["RestartRequested"])
        assert decide(ask('{"id": "a"}', restartRequest="a"), *all_pods()) == Plan()

    def test_request_to_recreate_deletes_all_pods(self) -> None:
        found = decide(ask('{"id": "a", "how": "Recreate"}'), *all_pods())
        assert written(found)["recreateGeneration"] == 1
        assert len(deleted(found)) == 3

    @pytest.mark.parametrize("scope", ["Job", "Task"])
    def test_request_restarts_pods_of_task_in_place(self, scope: str) -> None:
        found = decide(ask('{"id": "a", "task": "Worker"}', scope), *all_pods())
        assert kinds(found) == [
            "PatchPodMetadata",
            "WriteStatus",
            "EmitEvent",
        ]  # a repeated request is harmless, a lost request is not
        assert (marked(found), written(found)["restartRequest"]) == (["digits-worker-0", "digits-worker-1"], "a")
        assert written(found).keys().isdisjoint({"restartGeneration", "restartCount", "replacing", "phase"})

    @pytest.mark.parametrize("scope", ["Job", "Task"])
    def test_request_to_recreate_replaces_a_single_pod(self, scope: str) -> None:
        text = '{"id": "a", "task": "Worker", "index": 1, "how": "Recreate"}'
        found = decide(ask(text, scope), *all_pods())
        assert kinds(found) == ["WriteStatus", "EmitEvent", "DeletePods"]
        assert (deleted(found), written(found)["replacing"]) == (["digits-worker-1"], ["worker-1"])
        again = ask(text, scope, restartRequest="a", replacing=["worker-1"])
        assert deleted(decide(again, *all_pods())) == ["digits-worker-1"]
        # The requested deletion is no disruption, and the other pods stay.
        assert written(decide(again, MASTER, WORKER, replace(OTHER, deleting=True))) == {}
        assert [type(each) for each in decide(again, MASTER, WORKER).actions] == [CreatePods]

    def test_late_requested_restart_replaces_pod_without_counting(self) -> None:
        late = replace(OTHER, requested_restart="1000000000000007", restart_requested_at=T - 61)
        found = decide(ask("", restartRequest="a"), MASTER, WORKER, late)
        assert (kinds(found), written(found)["replacing"]) == (["WriteStatus", "EmitEvent"], ["worker-1"])
        assert "restartCount" not in written(found)

    def test_request_for_unknown_task_is_acknowledged(self) -> None:
        found = decide(ask('{"id": "a", "task": "Evaluator"}'), *all_pods())
        assert (kinds(found), written(found)["restartRequest"]) == (["WriteStatus", "EmitEvent"], "a")

    @pytest.mark.parametrize("text", ["", "{}", "nonsense", '{"id": "a", "how": "Gently"}', '{"id": 3}'])
    def test_invalid_request_is_ignored(self, text: str) -> None:
        assert decide(ask(text), *all_pods()) == Plan()

    def test_request_for_queued_job_is_acknowledged_at_admission(self) -> None:
        waiting = job(status=status("Queued"), annotations={labels.RESTART_REQUEST: '{"id": "a"}'})
        assert written(decide(waiting))["restartRequest"] == "a"


class TestNodes:
    ON = replace(WORKER, node="n1")

    def test_pod_on_dead_node_is_replaced_as_disruption(self) -> None:
        found = decide(RUNNING, MASTER, self.ON, OTHER, dead_nodes=frozenset({"n1"}))
        change = written(found)
        assert (change["disruptions"], change["nodeFailures"]) == (1, {"n1": 1})
        assert "restartCount" not in change
        assert deleted(found, at_once=True) == ["digits-worker-0"]
        assert marked(found) == ["digits-master-0", "digits-worker-1"]

    def test_node_with_repeated_failures_is_excluded(self) -> None:
        twice = job(status=status("Running", nodeFailures={"n1": 2, "n2": 1}))
        failed = replace(self.ON, phase="Failed", exit_code=137)
        found = decide(twice, MASTER, failed, OTHER, settings=ReconcileSettings())
        assert written(found)["excludedNodes"] == ["n1"]
        assert told(found) == ["Restarting", "NodeExcluded"]
        before = restart_counts.new_exclusions(twice.status, twice.status)
        assert before == ()

    def test_the_only_node_is_not_excluded(self) -> None:
        twice = job(status=status("Running", nodeFailures={"n1": 2}))
        found = decide(twice, MASTER, replace(self.ON, phase="Failed", exit_code=137), OTHER, settings=LOCAL)
        assert "excludedNodes" not in written(found)
        assert written(found)["nodeFailures"] == {"n1": 3}

    def test_new_admission_clears_node_failures(self) -> None:
        again = job(status=status("Queued", attempt=0, nodeFailures={"n1": 3}, excludedNodes=["n1"], replacing=["x"]))
        change = written(decide(again))
        assert (change["nodeFailures"], change["excludedNodes"], change["replacing"]) == ({"n1": None}, [], [])

    def test_new_pods_avoid_excluded_nodes(self) -> None:
        avoids = job(status=status("Admitted", nodeFailures={"n1": 3}, excludedNodes=["n1"]))
        for others, field in ((True, "required"), (False, "preferred")):
            create, _ = (each for each in decide(avoids, other_nodes=others).actions if isinstance(each, CreatePods))
            (rule,) = create.manifests[0]["spec"]["affinity"]["nodeAffinity"]
            assert rule == f"{field}DuringSchedulingIgnoredDuringExecution"

    def test_plan_requeues_when_silent_node_becomes_dead(self) -> None:
        assert decide(RUNNING, *all_pods(), next_dead=12.5) == Plan(requeue_after=12.5)


class TestDepartures:
    GOING = replace(WORKER, deleting=True, deadline=T - 30, node="n1")

    @pytest.mark.parametrize(
        ("fields", "dead", "expected"),
        [
            ({}, False, [("digits-worker-0", False)]),
            ({}, True, [("digits-worker-0", True)]),
            ({"has_finalizers": True}, True, [("digits-worker-0", False)]),
            ({"deleting": True, "deadline": T + 1}, True, []),  # the grace period of the pod is not over
            ({"deleting": True, "deadline": T - 1}, True, [("digits-worker-0", True)]),
            ({"deleting": True, "deadline": T - 61}, True, [("digits-worker-0", True)]),
            ({"deleting": True, "deadline": T - 61}, False, []),  # a healthy node deletes the pod itself
            ({"deleting": True, "deadline": T - 61, "has_finalizers": True}, True, []),
        ],
    )
    def test_deletion_depends_on_node_and_finalizers(
        self, fields: dict[str, Any], dead: bool, expected: list[tuple[str, bool]]
    ) -> None:
        deletion = PodDeletion(T, 60.0, frozenset({"n1"} if dead else ()))
        found = deletion.delete([replace(WORKER, node="n1", **fields)])
        assert [(each.pods[0].name, each.at_once) for each in found] == expected

    def test_next_change_follows_deadline_of_terminating_pod(self) -> None:
        deletion = PodDeletion(T, 60.0)
        assert deletion.next_change([self.GOING]) == 30.0
        assert deletion.next_change([replace(self.GOING, deadline=T - 600)]) == 60.0  # the reconcile does not loop
        assert PodDeletion(T, 0.0).next_change([self.GOING]) == 1.0
        assert deletion.next_change([WORKER, replace(self.GOING, deadline=None)]) is None

    def test_pod_kept_by_finalizers_is_reported_once(self) -> None:
        kept = replace(self.GOING, has_finalizers=True, deadline=T - 100, restart=0)
        counted = job(status=status("Admitted", restartGeneration=1))
        found = decide(counted, *all_pods(restart=1)[::2], kept)
        assert (kinds(found), told(found)) == (["WriteStatus", "EmitEvent"], ["PodsStuck"])
        (admitted,) = (each for each in written(found)["conditions"] if each["type"] == "Admitted")
        assert admitted["reason"] == "PodsStuck"
        assert "digits-worker-0" in admitted["message"]
        said = job(status=status("Admitted", restartGeneration=1, conditions=written(found)["conditions"]))
        assert decide(said, *all_pods(restart=1)[::2], kept) == Plan(requeue_after=60.0)


def test_running_job_reports_stuck_pod_until_it_is_deleted() -> None:
    kept = replace(WORKER, deleting=True, has_finalizers=True, deadline=T - 100)
    before = status("Running", replacing=["worker-0"])
    spec: dict[str, Any] = {"restartScope": "Task", "minMembers": {"Worker": 1}}
    found = decide(job(status=before, **spec), MASTER, kept, OTHER)
    assert (kinds(found), told(found)) == (["WriteStatus", "EmitEvent"], ["PodsStuck"])
    said = before | {"conditions": written(found)["conditions"]}
    assert decide(job(status=said, **spec), MASTER, kept, OTHER).actions == ()
    assert kinds(decide(job(status=said, **spec), MASTER, OTHER)) == ["WriteStatus", "CreatePods"]
    assert kinds(decide(job(status=said | {"replacing": []}, **spec), *all_pods())) == ["WriteStatus"]


STUCK = replace(WORKER, deleting=True, has_finalizers=True, deadline=T - 100)


@pytest.mark.parametrize(
    ("of", "kinds_of"),
    [
        (
            job(status=status("Admitted", restartGeneration=1), suspend=True),
            ["WriteStatus"],
        ),  # the status is written first
        (job(status=status("Succeeded", completionTime="2026-01-02T03:04:00Z")), ["EmitEvent"]),
        (job(status=status("Queued")), ["EmitEvent"]),
        (None, ["EmitEvent"]),
    ],
)
def test_job_that_should_have_no_pods_reports_stuck_pod(of: Any, kinds_of: list[str]) -> None:
    found = decide(of, STUCK, reservation=None)
    assert kinds(found) == kinds_of
    assert found.requeue_after == 60.0
    if of is not None and of.spec.suspend:
        said = status("Admitted", restartGeneration=2, conditions=written(found)["conditions"])
        found = decide(job(status=said, suspend=True), STUCK, reservation=None)
        assert (kinds(found), told(found)) == (["WriteStatus", "EmitEvent"], ["PodsStuck"])
        said |= {"conditions": written(found)["conditions"]}
        assert not decide(job(status=said, suspend=True), STUCK, reservation=None).actions
        assert written(decide(job(status=said, suspend=True), reservation=None))["phase"] == "Suspended"


def test_failure_of_one_of_several_pods_waits_for_other_failures() -> None:
    master = replace(MASTER, phase="Failed", exit_code=1, ended=T - 0.5)
    assert decide(RUNNING, master, WORKER, OTHER) == Plan(requeue_after=1.5)
    killed = replace(WORKER, phase="Failed", exit_code=137, ended=T - 0.5)
    assert written(decide(RUNNING, master, killed, OTHER))["restartCount"] == 1
    assert written(decide(RUNNING, replace(master, ended=T - 3), WORKER, OTHER))["phase"] == "Failed"
    assert written(decide(RUNNING, master))["phase"] == "Failed"  # no other pod is left that could explain the failure


class Nodes:
    """A cache of nodes."""

    synced = True
    failing = ""

    def __init__(self, *nodes: NodeView) -> None:
        self.nodes = {each.name: each for each in nodes}

    def get(self, _namespace: str, name: str) -> NodeView | None:
        return self.nodes.get(name)

    def values(self) -> list[NodeView]:
        return list(self.nodes.values())


WELL = NodeView("well", True, T - 1000, True)
SILENT, DEAD = NodeView("silent", False, T - 20, True), NodeView("dead", False, T - 61, True)


class TestSight:
    def see(self, *names: str, since: float | None = T - 1000, failing: str = "", synced: bool = True) -> NodeHealth:
        nodes = Nodes(WELL, SILENT, DEAD)
        nodes.failing, nodes.synced = failing, synced
        return node_view.node_health(nodes, [pod(node=name, since=since) for name in names], 60.0, T)

    def test_silent_node_is_dead_after_its_grace(self) -> None:
        assert self.see("well", "silent", "dead", "") == NodeHealth(frozenset({"dead"}), 40.0)

    def test_missing_node_is_dead_for_older_pods(self) -> None:
        assert self.see("gone").dead == {"gone"}
        assert self.see("gone", since=T - 20) == NodeHealth(frozenset(), 40.0)  # the node may be new
        assert self.see("gone", since=None) == NodeHealth()

    def test_missing_node_is_not_dead_while_cache_may_be_outdated(self) -> None:
        assert self.see("gone", failing="Unreachable").dead == frozenset()
        assert self.see("gone", "dead", synced=False) == NodeHealth()
        assert node_view.node_health(None, [pod(node="n1")], 60.0, T) == NodeHealth()

    @pytest.mark.parametrize(
        ("nodes", "avoided", "room"),
        [
            ([("a", 3000)], [], True),
            ([("a", 2000), ("b", 1000)], [], True),
            ([("a", 2000), ("b", 999)], [], False),
            ([("a", 3000), ("b", 3000)], ["a"], True),
            ([("a", 3000), ("b", 2000)], ["a"], False),
            ([("a", 999), ("b", 999), ("c", 999), ("d", 999)], [], False),
            ([], [], False),
        ],
    )
    def test_fits_elsewhere_needs_room_for_the_whole_job(
        self, nodes: list[tuple[str, int]], avoided: list[str], room: bool
    ) -> None:
        each = (NodeView(name, True, T - 1000, True, {"cpu": cpu, "memory": 1, "pods": 3}) for name, cpu in nodes)
        assert node_view.fits_elsewhere(Nodes(*each), avoided, job().spec) == room  # the job has three pods of 1 cpu

    @pytest.mark.parametrize(
        ("nodes", "expected"),
        [
            ([], None),
            ([("a", True, T - 100)], None),  # the node was ready when the job was admitted
            ([("a", True, T + 50)], T + 50),
            ([("a", True, T + 50), ("b", True, T + 40)], T + 40),
            ([("a", True, T + 50), ("b", True, T - 100)], None),
            ([("a", True, T + 50), ("b", False, T - 100)], T + 50),
            ([("a", False, T + 50)], None),
            ([("a", True, None), ("b", True, T + 40)], None),
        ],
    )
    def test_ready_again_returns_when_a_first_node_became_ready(
        self, nodes: list[tuple[str, bool, float | None]], expected: float | None
    ) -> None:
        cache = Nodes(*(NodeView(name, ready, since, True) for name, ready, since in nodes))
        assert node_view.ready_again(cache, T) == expected
        cache.synced = False
        assert node_view.ready_again(cache, T) is None
        assert node_view.ready_again(None, T) is None

    def test_fits_elsewhere_ignores_unschedulable_and_silent_nodes(self) -> None:
        much = {"cpu": 99_000, "pods": 110}
        closed, silent = NodeView("closed", True, T, False, much), NodeView("silent", False, T, True, much)
        assert not node_view.fits_elsewhere(Nodes(closed, silent), [], job().spec)
        assert not node_view.fits_elsewhere(None, [], job().spec)

    def test_trim_keeps_readiness_and_allocatable_of_node(self) -> None:
        ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-02T03:04:05Z"}
        told: dict[str, Any] = {"conditions": [ready]}
        manifest = {"metadata": {"name": "n1"}, "spec": {"unschedulable": True}, "status": told}
        assert node_view.trim(manifest) == NodeView("n1", False, T, False)
        assert node_view.trim({"metadata": {"name": "n1"}}) == NodeView("n1", False, None, True)
        for text, kept in (("2", {"cpu": 2000}), ("much", {})):
            told["allocatable"] = {"cpu": text}
            assert node_view.trim(manifest).allocatable == kept


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
GPU = {"key": "gpu", "operator": "Exists"}
NOT_IN = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1", "n2"]}


class TestAvoidance:
    def avoid(self, theirs: dict[str, Any] | None, *, strictly: bool = True) -> dict[str, Any]:
        spec: dict[str, Any] = {} if theirs is None else {"affinity": {"nodeAffinity": theirs, "podAffinity": {}}}
        node_affinity.avoid(spec, ["n2", "n1"], strictly=strictly)
        found: dict[str, Any] = spec["affinity"]["nodeAffinity"]
        return found

    def test_avoid_nodes_strictly_sets_required_affinity(self) -> None:
        assert self.avoid(None) == {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [NOT_IN]}]}}

    def test_avoid_nodes_extends_every_term_of_template(self) -> None:
        field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n3"]}]}
        theirs = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [GPU]}, field, {}]}, PREFERRED: []}
        terms = [{"matchExpressions": [GPU, NOT_IN]}, field | {"matchExpressions": [NOT_IN]}]
        assert self.avoid(theirs) == {REQUIRED: {"nodeSelectorTerms": terms}, PREFERRED: []}

    def test_avoid_nodes_keeps_empty_term(self) -> None:
        assert self.avoid({REQUIRED: {"nodeSelectorTerms": [{}]}}) == {REQUIRED: {"nodeSelectorTerms": [{}]}}

    def test_avoid_nodes_loosely_adds_preferred_affinity(self) -> None:
        preferred = {"weight": 100, "preference": {"matchExpressions": [NOT_IN]}}
        theirs = {"weight": 1, "preference": {"matchExpressions": [GPU]}}
        assert self.avoid({PREFERRED: [theirs]}, strictly=False) == {PREFERRED: [theirs, preferred]}

    def test_avoid_nodes_without_nodes_changes_nothing(self) -> None:
        spec: dict[str, Any] = {}
        node_affinity.avoid(spec, [], strictly=True)
        assert spec == {}


@pytest.mark.parametrize(
    ("policy", "driver", "pods"),
    [
        ("OnFailure", "recreate", "Never"),
        ("OnFailure", "kubernetes", "Never"),
        ("ExitCode", "kruise", "OnFailure"),
        ("Never", "kruise", "Never"),
        ("Always", "kruise", "Always"),
        ("Always", "kubernetes", "Always"),
    ],
)
def test_restart_policy_depends_on_policy_and_driver(policy: str, driver: str, pods: str) -> None:
    spec: dict[str, Any] = {"containers": [{"name": "torch"}]}
    set_restart_policy(spec, policy, driver)
    assert spec == {"containers": [{"name": "torch"}], "restartPolicy": pods}
