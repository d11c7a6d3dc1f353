"""The benchmarks of restarts: their objects and arguments, and a short run from end to end."""

from typing import Any

import pytest

from bench.benchmarks import restarts
from bench.support import kubelet_player
from bench.support.kubelet_player import Pod
from crds import labels
from kube.api import Manifest
from reconcilers.views import pod_view

POD = Pod("team", "large-worker-0", "Running", ("torch",), "", "", 0)


def pod(status: dict[str, Any]) -> Manifest:
    """Return the pod of the simulated kubelet, with the status that this kubelet wrote."""
    notes = {labels.RESTART_CONTAINERS: "3"}
    metadata = {"name": POD.name, "namespace": "team", "uid": "u", "resourceVersion": "1", "annotations": notes}
    owner = {"apiVersion": "train.distributed.io/v1alpha1", "kind": "TorchJob", "name": "large", "uid": "j"}
    metadata |= {"labels": {labels.JOB_UID: "j"}, "ownerReferences": [{**owner, "controller": True}]}
    return {"metadata": metadata, "spec": {"containers": [{"name": "torch"}]}, "status": status}


def test_played_kubelet_reports_a_start_and_a_restart_as_the_worker_reads_it() -> None:
    started = pod_view.trim(pod(kubelet_player.running(POD)))
    assert (started.running, started.restarts, started.completed_restart) == (True, 0, "")
    again = pod_view.trim(pod(kubelet_player.running(POD._replace(asked="3"))))
    assert (again.running, again.restarts, again.completed_restart) == (True, 1, "3")


@pytest.mark.parametrize(
    ("state", "due"),
    [
        (POD, None),
        (POD._replace(phase="Pending"), ""),
        (POD._replace(asked="3"), "3"),
        (POD._replace(asked="3", done="3"), None),
        (POD._replace(asked="3", phase="Failed"), None),
    ],
)
def test_played_kubelet_does_what_a_pod_asks_for_once(state: Pod, due: str | None) -> None:
    assert kubelet_player._due(state) == due


@pytest.mark.redis_server
@pytest.mark.stack
def test_a_short_run_asks_every_pod_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(restarts.ASSETS, raising=False)
    found = restarts.run(restarts.Options(pods=6, restart_seconds=0.1, seconds=60.0))
    assert (found["server"], found["most_writes_per_pod"]) == ("embedded", 1)
    assert 0 < found["first_ask_s"] <= found["last_ask_s"] <= found["all_run_again_s"]
