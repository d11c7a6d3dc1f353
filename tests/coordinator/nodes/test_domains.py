"""Jobs whose pods share one rack, on an API server whose nodes, scheduler and kubelets the test plays."""

from typing import Any

import pytest

from crds.api_resources import NODES, PODS
from crds.keys import JobKey
from queues.placement import pod_nodes
from reconcilers.pods.node_affinity import REQUIRED
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk
from tests.support.coordinator.machines import Machines, places, until
from tests.support.kube import servers
from tests.support.kube.servers import Server

RACK = "example.org/rack"
SINCE_READY = 1_800_000_000.0
"""A time after the nodes became ready: a job's time to run does not begin before."""
RACKS = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r2"}


@pytest.fixture
def clock() -> Clock:
    found = Clock()
    found.now = SINCE_READY
    return found


@pytest.fixture
def desk_settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    settings = {"admission_timeout": 100.0, "dead_node_grace": 5.0, "topology_labels": RACK}
    return settings | getattr(request, "param", {})


@pytest.fixture
def machines(desk: Desk, server: Server, namespace: str) -> Machines:
    """Return two racks with two nodes of 8 CPUs each."""
    found = Machines(desk, server, namespace)
    for name, rack in RACKS.items():
        found.add(name, {RACK: rack, "node": name}, cpu="8")
    return found


def submit(machines: Machines, name: str, pods: int, cpu: int, queue: str = "a", **more: Any) -> JobKey:
    tasks = {"Worker": desks.task(pods, str(cpu)) | {"restartPolicy": "OnFailure"}}
    if node := more.pop("node", ""):
        tasks["Worker"]["template"]["spec"]["nodeSelector"] = {"node": node}
    topology = more.pop("topology", {"required": RACK})
    return machines.desk.submit(
        name, machines.namespace, queue, tasks=tasks, schedulingPolicy={"topology": topology}, **more
    )


def fill(machines: Machines, node: str) -> JobKey:
    """Run a pod on a node that leaves too little there for a pod of 5 CPUs."""
    key = submit(machines, f"on-{node}", 1, 5, node=node, topology={})
    until(machines, lambda: places(machines, key) == [node])
    machines.desk.see()
    return key


def settle(machines: Machines) -> None:
    """Let everybody take some steps."""
    steps = iter(range(30))
    until(machines, lambda: next(steps, None) is None)


def domain(machines: Machines, key: JobKey) -> str:
    admission = machines.desk.job(key).admission
    return admission.domain if admission is not None else ""


def required_terms(machines: Machines, key: JobKey) -> list[Any]:
    pods = machines.desk.cluster.list(PODS, key.namespace).items
    own = [each for each in pods if each["metadata"]["name"].startswith(f"{key.name}-worker")]
    return [each["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] for each in own]


def test_gang_goes_to_the_rack_that_holds_it_whole_and_its_pods_require_that_rack(machines: Machines) -> None:
    fill(machines, "n1")
    gang = submit(machines, "gang", 2, 5)
    until(machines, lambda: len(places(machines, gang)) == 2)
    assert places(machines, gang) == ["n3", "n4"]
    assert domain(machines, gang) == f"{RACK}=r2"
    term = {"matchExpressions": [{"key": RACK, "operator": "In", "values": ["r2"]}]}
    assert required_terms(machines, gang) == [[term]] * 2


def test_gang_that_only_two_racks_hold_together_waits_until_one_does(machines: Machines) -> None:
    first = fill(machines, "n1")
    fill(machines, "n3")
    gang = submit(machines, "gang", 2, 5)
    free = submit(machines, "free", 2, 3, "b", topology={"preferred": RACK})
    until(machines, lambda: len(places(machines, free)) == 2)
    assert gang not in machines.desk.reserved()
    machines.desk.change(first, suspend=True)
    until(machines, lambda: len(places(machines, gang)) == 2)
    assert domain(machines, gang) == f"{RACK}=r1"


def test_new_leader_and_worker_know_the_rack_of_a_gang_that_no_worker_has_seen(machines: Machines) -> None:
    fill(machines, "n3")
    gang = submit(machines, "gang", 2, 4)
    machines.desk.until(lambda: gang in machines.desk.reserved(), worker=False)
    held = machines.desk.store.all_reservations()[gang]
    assert pod_nodes.domain(held.nodes) == f"{RACK}=r2"
    machines.desk.begin(2)
    machines.desk.term.step()
    known = machines.desk.node_places.copy()
    assert known is not None
    assert [known.room.free(known.room.index(name))["cpu"] for name in RACKS] == [8000, 8000, 3000, 0]
    until(machines, lambda: len(places(machines, gang)) == 2)
    assert places(machines, gang) == ["n4", "n4"]
    assert domain(machines, gang) == f"{RACK}=r2"


def test_job_that_asks_for_a_rack_after_its_pick_is_picked_anew(machines: Machines) -> None:
    gang = submit(machines, "gang", 2, 5, topology={})
    machines.desk.until(lambda: gang in machines.desk.reserved(), worker=False)
    machines.desk.change(gang, schedulingPolicy={"topology": {"required": RACK}})
    machines.desk.see()
    until(machines, lambda: len(places(machines, gang)) == 2)
    assert domain(machines, gang) == f"{RACK}=r1"


def test_lost_node_is_replaced_in_the_rack_or_the_job_moves_as_a_whole_after_the_timeout(machines: Machines) -> None:
    blocker = fill(machines, "n1")
    gang = submit(machines, "gang", 2, 5)
    until(machines, lambda: machines.desk.phase(gang) == "Running")
    machines.desk.change(blocker, suspend=True)
    until(machines, lambda: blocker not in machines.desk.reserved())
    machines.change("n3", unschedulable=True)
    desks.remove(machines.desk.cluster, PODS, "gang-worker-0", machines.namespace)
    settle(machines)
    assert machines.desk.phase(gang) == "Admitted"
    assert domain(machines, gang) == f"{RACK}=r2"
    machines.desk.clock.step(150)
    until(machines, lambda: machines.desk.phase(gang) == "Queued")
    assert "must run on nodes with example.org/rack=r2" in machines.desk.job(gang).status.conditions[0].message
    machines.desk.clock.step(150)
    until(machines, lambda: len(places(machines, gang)) == 2)
    assert places(machines, gang) == ["n1", "n2"]
    assert domain(machines, gang) == f"{RACK}=r1"


def test_replacement_stays_in_the_rack(machines: Machines) -> None:
    machines.add("n5", {RACK: "r1"}, cpu="8")
    gang = submit(machines, "gang", 2, 5)
    until(machines, lambda: machines.desk.phase(gang) == "Running")
    before = domain(machines, gang)
    lost = places(machines, gang)[0]
    machines.change(lost, unschedulable=True)
    desks.remove(machines.desk.cluster, PODS, "gang-worker-0", machines.namespace)
    if before == f"{RACK}=r2":
        machines.add("n6", {RACK: "r2"}, cpu="8")
    until(machines, lambda: machines.desk.phase(gang) == "Running" and len(places(machines, gang)) == 2)
    assert domain(machines, gang) == before


def test_growth_asks_for_room_in_the_rack_alone(machines: Machines) -> None:
    fill(machines, "n3")
    policy = {"numMinReplicas": 1, "numMaxReplicas": 4}
    job = submit(machines, "grows", 1, 5, torchElasticPolicy=policy)
    until(machines, lambda: len(places(machines, job)) >= 1)
    rack = domain(machines, job)
    spec = machines.desk.job(job).spec.torch_task_specs["Worker"]
    tasks = {"Worker": desks.task(4, "5") | {"restartPolicy": spec.restart_policy}}
    machines.desk.change(job, torchTaskSpecs=tasks)
    settle(machines)
    admission = machines.desk.job(job).admission
    assert admission is not None
    fits = {f"{RACK}=r1": 2, f"{RACK}=r2": 1}[rack]
    assert admission.workers == fits
    assert {RACKS[node] for node in places(machines, job)} == {rack.partition("=")[2]}


@pytest.mark.parametrize("desk_settings", [{"placement_hints": False}], indirect=True)
def test_real_scheduler_binds_all_pods_of_the_gang_to_nodes_of_its_rack(server: Server, machines: Machines) -> None:
    if server.embedded:
        pytest.skip("the embedded scheduler is played by the test")
    for name in RACKS:
        machines.change(name, taints=None)
    machines.binds = False
    with servers.scheduler(server):
        gang = submit(machines, "gang", 4, 2)
        until(machines, lambda: len(places(machines, gang)) == 4)
    assert {f"{RACK}={RACKS[node]}" for node in places(machines, gang)} == {domain(machines, gang)}


def test_label_that_is_no_level_is_named_and_the_job_waits(machines: Machines) -> None:
    job = submit(machines, "typo", 1, 1, topology={"required": "example.org/rak"})

    def waits() -> tuple[str, str]:
        queue = machines.desk.job(job).status.queue
        return (queue.reason, queue.message) if queue is not None else ("", "")

    machines.desk.clock.step(10)
    until(machines, lambda: machines.desk.write_reasons() == 0 and waits()[0])
    words = f"topology.required: example.org/rak is none of the levels {RACK} (the setting topology_labels)"
    assert waits() == ("TopologyNotFound", words)


def test_rack_that_loses_its_label_is_chosen_no_more_and_its_jobs_run_on(machines: Machines) -> None:
    gang = submit(machines, "gang", 2, 5)
    until(machines, lambda: machines.desk.phase(gang) == "Running")
    for name in RACKS:
        machines.desk.cluster.patch(NODES, name, {"metadata": {"labels": {RACK: None}}})
    machines.desk.see()
    other = submit(machines, "other", 1, 1)
    settle(machines)
    assert other not in machines.desk.reserved()
    assert machines.desk.phase(gang) == "Running"
