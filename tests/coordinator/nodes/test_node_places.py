"""Jobs that are admitted only if their pods find nodes, on an API server whose nodes, scheduler and kubelets the test
plays."""

import pytest

from coordinator.leader.node_places import TYPICAL_SECONDS
from coordinator.query.queries import StoreQueries
from crds.api_resources import NODES, PODS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from reconcilers.pods.node_affinity import PREFERRED
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk
from tests.support.coordinator.machines import Machines, places, until
from tests.support.kube import servers
from tests.support.kube.servers import Server


@pytest.fixture
def machines(desk: Desk, server: Server, namespace: str) -> Machines:
    """Return two nodes of 8 CPUs."""
    found = Machines(desk, server, namespace)
    for name in ("n1", "n2"):
        found.add(name, {"node": name}, cpu="8")
    return found


def submit(machines: Machines, name: str, queue: str, pods: int, cpu: int, **selector: str) -> JobKey:
    tasks = {"Worker": desks.task(pods, str(cpu))}
    tasks["Worker"]["template"]["spec"]["nodeSelector"] = selector
    return machines.desk.submit(name, machines.namespace, queue, tasks=tasks)


def runs(machines: Machines, key: JobKey, pods: int) -> bool:
    return len(places(machines, key)) == pods


def settle(machines: Machines) -> None:
    for _ in range(10):
        until(machines, lambda: True)


@pytest.fixture
def half_full(machines: Machines) -> Machines:
    """Return two nodes with 4 of 8 CPUs free on each."""
    for name in ("n1", "n2"):
        key = submit(machines, f"on-{name}", "a", 1, 4, node=name)
        until(machines, lambda key=key: runs(machines, key, 1))
        assert places(machines, key) == [name]
    machines.desk.see()
    return machines


def test_a_pod_larger_than_what_is_free_on_each_node_is_not_admitted(half_full: Machines) -> None:
    large = submit(half_full, "large", "a", 1, 8)
    settle(half_full)
    assert large not in half_full.desk.reserved()
    fitting = submit(half_full, "fitting", "b", 2, 4)
    until(half_full, lambda: runs(half_full, fitting, 2))
    assert sorted(places(half_full, fitting)) == ["n1", "n2"]
    assert large not in half_full.desk.reserved()


def test_the_places_of_a_gang_are_kept_until_its_pods_come(machines: Machines) -> None:
    first = submit(machines, "first", "a", 1, 5)
    machines.desk.until(lambda: first in machines.desk.reserved(), worker=False)
    second = submit(machines, "second", "b", 2, 5)
    third = submit(machines, "third", "b", 1, 5)
    until(machines, lambda: runs(machines, first, 1) and runs(machines, third, 1))
    assert second not in machines.desk.reserved()


def test_a_new_leader_knows_the_places_of_pods_that_did_not_come_yet(machines: Machines) -> None:
    first = submit(machines, "first", "a", 1, 5)
    machines.desk.until(lambda: first in machines.desk.reserved(), worker=False)
    machines.desk.begin(2)
    second = submit(machines, "second", "b", 2, 5)
    until(machines, lambda: runs(machines, first, 1))
    settle(machines)
    assert second not in machines.desk.reserved()


def test_a_job_that_ends_leaves_its_places_to_the_next(half_full: Machines) -> None:
    large = submit(half_full, "large", "a", 1, 8)
    settle(half_full)
    (first,) = [key for key in half_full.desk.reserved() if key.name == "on-n1"]
    half_full.desk.change(first, suspend=True)
    until(half_full, lambda: runs(half_full, large, 1))
    assert places(half_full, large) == ["n1"]


def test_a_cordoned_node_has_no_places_and_a_reopened_one_has_them_again(machines: Machines) -> None:
    machines.change("n1", unschedulable=True)
    machines.desk.see()
    gang = submit(machines, "gang", "a", 2, 5)
    settle(machines)
    assert gang not in machines.desk.reserved()
    machines.change("n1", unschedulable=False)
    until(machines, lambda: runs(machines, gang, 2))


def test_what_a_job_holds_on_a_cordoned_node_is_taken_from_no_other_node(machines: Machines) -> None:
    tasks = {"Worker": desks.task(1, "6")}
    stays = machines.desk.submit("stays", machines.namespace, "a", tasks=tasks, evictions="Refuse")
    until(machines, lambda: runs(machines, stays, 1))
    assert places(machines, stays) == ["n1"]
    machines.change("n1", unschedulable=True)
    machines.desk.see()
    next_one = submit(machines, "next", "b", 1, 5)
    until(machines, lambda: runs(machines, next_one, 1))
    assert places(machines, next_one) == ["n2"]
    later = submit(machines, "later", "b", 1, 4)
    settle(machines)
    machines.desk.begin(2)
    settle(machines)
    assert machines.desk.reserved() == {stays, next_one}
    assert shown(machines, later) == ("14", "11", "WaitingForPool")
    machines.desk.change(stays, suspend=True)  # what it held goes with its pod
    until(machines, lambda: machines.desk.reserved() == {next_one} and shown(machines, later)[0] == "8")
    settle(machines)
    assert later not in machines.desk.reserved()
    machines.change("n1", unschedulable=False)
    until(machines, lambda: runs(machines, later, 1))
    assert places(machines, later) == ["n1"]


def test_the_room_of_pods_that_leave_a_cordoned_node_waits_for_them(machines: Machines) -> None:
    moves = submit(machines, "moves", "a", 1, 6)
    until(machines, lambda: runs(machines, moves, 1))
    machines.change("n1", unschedulable=True)
    machines.desk.see()
    other = submit(machines, "other", "b", 1, 5)
    until(machines, lambda: places(machines, moves) == ["n2"])
    settle(machines)
    assert machines.desk.reserved() == {moves}
    assert other in machines.desk.waiting()


def shown(machines: Machines, waiting: JobKey) -> tuple[str, str, str]:
    """Return the CPUs of the pool and those in use, as `torchq next` shows them, and why a job waits."""
    desk = machines.desk
    queries = StoreQueries(
        desk.store, pytest.fail, desk.settings.rules, clock=desk.clock, node_places=desk.node_places.copy
    )
    pool = queries.next(1)["pool"]
    return pool["capacity"]["cpu"], pool["used"]["cpu"], queries.job(waiting)["code"]


def test_a_selector_counts_only_the_nodes_that_it_selects(machines: Machines) -> None:
    machines.add("n3", {"kind": "fast"}, cpu="4")
    key = submit(machines, "picky", "a", 1, 5, kind="fast")
    settle(machines)
    assert key not in machines.desk.reserved()
    machines.add("n4", {"kind": "fast"}, cpu="8")
    machines.desk.until(lambda: key in machines.desk.reserved(), worker=False)


def test_real_scheduler_binds_all_pods_of_what_is_admitted(server: Server, machines: Machines) -> None:
    if server.embedded:
        pytest.skip("the embedded scheduler is played by the test")
    for name in ("n1", "n2"):
        machines.change(name, taints=None)
    machines.binds = False
    with servers.scheduler(server):
        half = [submit(machines, f"on-{name}", "a", 1, 4, node=name) for name in ("n1", "n2")]
        until(machines, lambda: all(runs(machines, key, 1) for key in half))
        larger, large, fitting = (
            submit(machines, f"of-{cpu}", "b", pods, cpu) for pods, cpu in ((1, 16), (1, 8), (2, 4))
        )
        until(machines, lambda: runs(machines, fitting, 2))
        assert sorted(places(machines, fitting)) == ["n1", "n2"]
        for key in (half[0], fitting):
            machines.desk.change(key, suspend=True)
        until(machines, lambda: runs(machines, large, 1))
        assert places(machines, large) == ["n1"]
        assert larger not in machines.desk.reserved()


def hints(machines: Machines, key: JobKey) -> list[str]:
    """Return the nodes that the pods of a job prefer, by the names of the pods."""
    pods = {each["metadata"]["name"]: each["spec"] for each in machines.desk.cluster.list(PODS, key.namespace).items}
    own = [spec for name, spec in sorted(pods.items()) if name.startswith(f"{key.name}-worker")]
    terms = [each for spec in own for each in spec.get("affinity", {}).get("nodeAffinity", {}).get(PREFERRED, [])]
    return [term["preference"]["matchFields"][0]["values"][0] for term in terms]


def test_pods_prefer_the_nodes_on_which_their_job_was_placed(half_full: Machines) -> None:
    half_full.add("n3", cpu="8")
    first = submit(half_full, "first", "a", 2, 4)
    until(half_full, lambda: runs(half_full, first, 2))
    assert hints(half_full, first) == ["n1", "n2"]
    whole = submit(half_full, "whole", "b", 1, 8)
    until(half_full, lambda: runs(half_full, whole, 1))
    assert hints(half_full, whole) == ["n3"]


def test_without_hints_pods_prefer_nothing(cluster: KubernetesCluster, server: Server, namespace: str) -> None:
    with Desk(cluster, Clock(), pool="nodes", placement_hints=False) as desk:
        desk.queue("a")
        desk.begin()
        machines = Machines(desk, server, namespace)
        machines.add("n1", cpu="8")
        key = submit(machines, "plain", "a", 2, 4)
        until(machines, lambda: runs(machines, key, 2))
        assert hints(machines, key) == []
        assert [held.nodes for held in desk.store.all_reservations().values()] == [""]
    desks.clear(cluster)
    desks.remove(cluster, NODES, "n1", "")


def test_places_spare_what_the_typical_pods_need_and_follow_a_pod_that_lands_elsewhere(machines: Machines) -> None:
    machines.add("n3", cpu="12")
    machines.change("n2", unschedulable=True)
    submit(machines, "absent", "a", 1, 8, node="absent")
    settle(machines)
    machines.desk.clock.step(TYPICAL_SECONDS)
    small = submit(machines, "small", "b", 1, 2)
    machines.desk.see()  # its pod is typical, too
    until(machines, lambda: runs(machines, small, 1))
    assert hints(machines, small) == ["n3"]
    assert places(machines, small) == ["n1"]  # the scheduler of this test reads no preferences
    rest = submit(machines, "rest", "b", 1, 6)
    until(machines, lambda: runs(machines, rest, 1))
    assert hints(machines, rest) == ["n1"]
    machines.change("n2", unschedulable=False)
    machines.desk.begin(2)
    later = submit(machines, "later", "b", 1, 2)
    until(machines, lambda: runs(machines, later, 1))
    assert hints(machines, later) == ["n3"]
