"""The pods of an elastic job whose ranks torchq chooses: the places of these pods are annotations, which containers
read.
"""

from typing import Any

from crds import labels
from crds.torchjob.torchjob import TorchJob
from kube.api import Manifest
from reconcilers.pods import pod_manifests
from reconcilers.pods.grants import Grant
from reconcilers.settings import ReconcileSettings
from reconcilers.views import containers
from tests.support.reconcilers.builders import ADMISSION, UID, job, status, task

POLICY = {"numMinReplicas": 1, "numMaxReplicas": 4, "mode": "InPlaceRestart"}
READ = {
    "RANK": labels.RANK,
    "WORLD_SIZE": labels.WORLD_SIZE,
    "PET_NNODES": labels.WORLD_SIZE,
    "NODE_RANK": labels.RANK,
    "PET_NODE_RANK": labels.RANK,
    "PET_RDZV_ID": labels.RENDEZVOUS_ID,
}


def described(policy: dict[str, Any] | None = None, **scaling: Any) -> TorchJob:
    """Return a job with a Master and three granted workers, in its third restart generation."""
    admission = ADMISSION | {"workers": 3, "grown": 0}
    change = {"from": 2, "to": 3, "since": "2026-01-02T03:00:00Z", **scaling} if scaling else None
    found = status("Running", admission=admission, restartGeneration=2, scaling=change)
    tasks = {"Master": task(), "Worker": task(3, dependsOn=[])}
    return job(tasks, status=found, torchElasticPolicy=POLICY | (policy or {}))


def make(found: TorchJob, grown: int | None = 0) -> dict[str, Manifest]:
    """Return every pod of the granted job, by its name without the name of the job."""
    assert found.admission is not None
    admission = found.admission.model_copy(update={"grown": grown})
    grant = Grant(found, admission)
    blueprint = pod_manifests.Blueprint(
        job=grant.job,
        admission=admission,
        members=grant.members,
        settings=ReconcileSettings(),
        open_gates=frozenset({"Worker"}),
    )
    pods = (pod_manifests.pod(blueprint, member) for member in grant.members.values())
    return {pod["metadata"]["name"].removeprefix("digits-"): pod for pod in pods}


def places(made: dict[str, Manifest]) -> dict[str, tuple[str, ...]]:
    names = (labels.RANK, labels.WORLD_SIZE, labels.RENDEZVOUS_ID)
    return {name: tuple(pod["metadata"]["annotations"].get(each, "") for each in names) for name, pod in made.items()}


def variables(pod: Manifest) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in pod["spec"]["containers"][0]["env"]}


def is_closed(pod: Manifest) -> bool:
    return containers.closed_since(pod["metadata"], pod["spec"], {}) is not None


def test_containers_read_their_place_when_they_start() -> None:
    made = make(described({"maxRestarts": 2}))
    assert places(made)["worker-1"] == ("2", "4", f"{UID}-2")
    for name in ("master-0", "worker-1"):
        found = variables(made[name])
        field = {each: found[each]["fieldRef"]["fieldPath"] for each in READ}
        assert field == {each: f"metadata.annotations['{note}']" for each, note in READ.items()}
        assert (found["MASTER_ADDR"], found["PET_MAX_RESTARTS"]) == ("digits-master-0", "2")
        assert "PET_RDZV_BACKEND" not in found
    assert "PET_MAX_RESTARTS" not in variables(make(described())["worker-0"]), "torchq restarts a failed pod"


def test_added_worker_waits_at_its_gate_without_a_place() -> None:
    made = make(described(world="0,2", deadline="2026-01-02T03:20:00Z"))
    assert places(made) == {
        "master-0": ("0", "3", f"{UID}-2"),
        "worker-0": ("1", "3", f"{UID}-2"),
        "worker-1": ("", "", ""),
        "worker-2": ("2", "3", f"{UID}-2"),
    }
    assert [name for name, pod in made.items() if is_closed(pod)] == ["worker-1"]
    assert variables(made["worker-1"])["RANK"] == variables(made["worker-0"])["RANK"]


def test_job_that_an_older_version_admitted_keeps_its_fixed_ranks() -> None:
    pod = make(described(), grown=None)["worker-1"]
    assert (variables(pod)["RANK"], variables(pod)["WORLD_SIZE"], "initContainers" in pod["spec"]) == ("2", "4", False)
