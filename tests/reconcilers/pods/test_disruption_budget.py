"""A job that refuses evictions. The disruption controller of a real cluster counts its pods."""

from crds.api_resources import POD_DISRUPTION_BUDGETS, PODS
from tests.support.kube import servers
from tests.support.kube.servers import Server
from tests.support.reconcilers.bench import Bench
from tests.support.waiting import until


def evict(server: Server, namespace: str, pod: str) -> int:
    """Request the eviction of a pod, and return the status code of the answer."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    return server.send("POST", PODS.path(namespace, pod, "eviction"), {**body, "deleteOptions": {"dryRun": ["All"]}})[0]


def test_no_pod_of_a_job_that_refuses_evictions_is_evicted_whatever_its_tasks(bench: Bench, server: Server) -> None:
    bench.submit(evictions="Refuse")
    bench.pick()
    bench.reconcile(times=2)
    bench.move("Running")
    bench.reconcile()
    assert bench.job.status.phase == "Running"
    if server.embedded:
        return  # the server has no disruption budgets, and the job runs without one
    (budget,) = bench.cluster.list(POD_DISRUPTION_BUDGETS, bench.namespace).items
    name = budget["metadata"]["name"]
    assert name == "digits-evictions-1"
    with servers.controllers(server, "disruption-controller"):

        def status() -> dict[str, int]:
            found = bench.cluster.get(POD_DISRUPTION_BUDGETS, name, bench.namespace)
            return found.get("status") or {}  # type: ignore[no-any-return]

        until(lambda: status().get("expectedPods") == 3)
        assert status()["disruptionsAllowed"] == 0
        assert [evict(server, bench.namespace, each) for each in bench.names()] == [429, 429, 429]


def test_job_that_allows_evictions_has_no_budget(bench: Bench, server: Server) -> None:
    bench.submit()
    bench.pick()
    bench.reconcile(times=2)
    assert server.embedded or not bench.cluster.list(POD_DISRUPTION_BUDGETS, bench.namespace).items
