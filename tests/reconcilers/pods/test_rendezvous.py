"""The pods of an elastic job that meet at its rendezvous store: environment, service, ports and gates."""

from typing import Any

import pytest

from crds import labels
from crds.torchjob.status import Admission
from crds.torchjob.torchjob import TorchJob
from gang import backends
from reconcilers.pods import host_file, pod_manifests, task_members
from reconcilers.settings import ReconcileSettings
from tests.support.reconcilers.builders import ADMISSION, UID, job, task, template

STORE = task(auxiliary=True, critical=True)
BOUNDS = {"numMinReplicas": 1, "numMaxReplicas": 4}
UPSTREAM = [{"taskType": "Rendezvous", "phase": "Running"}]
FIELDS = {
    "PET_RDZV_ID": {"fieldPath": "metadata.annotations['train.distributed.io/rendezvous-id']"},
    "PET_LOCAL_ADDR": {"fieldPath": "status.podIP"},
}


def elastic(policy: dict[str, Any] | None = None, worker: dict[str, Any] | None = None, **more: Any) -> TorchJob:
    """Return an elastic job of two workers with a store."""
    workers = worker or task(2)
    tasks = {"Worker": {"dependsOn": UPSTREAM, **workers}, "Rendezvous": STORE, **more.pop("tasks", {})}
    return job(tasks, torchElasticPolicy=BOUNDS | (policy or {}), **more)


def make(described: TorchJob, open_gates: frozenset[str] = frozenset(), **settings: Any) -> dict[str, dict[str, Any]]:
    """Return every pod of a job, by name."""
    blueprint = blueprint_of(described, open_gates, **settings)
    return {name: pod_manifests.pod(blueprint, member) for name, member in blueprint.members.items()}


def blueprint_of(
    described: TorchJob, open_gates: frozenset[str] = frozenset(), **settings: Any
) -> pod_manifests.Blueprint:
    admission = Admission.model_validate(ADMISSION | {"workers": 2, "grown": 0})
    return pod_manifests.Blueprint(
        job=described,
        admission=admission,
        members=task_members.members(described, admission.attempt),
        settings=ReconcileSettings(**settings),
        backend=backends.NONE,
        open_gates=open_gates,
    )


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of a pod's main container; the value of a variable that is read from a field is its
    fieldRef.
    """
    entries = pod["spec"]["containers"][0]["env"]
    found = {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"] for each in entries}
    assert len(found) == len(entries), "a variable is listed twice"
    return found


def test_workers_get_what_torchrun_needs_to_meet_others() -> None:
    made = make(elastic())
    expected = {
        "PYTHONUNBUFFERED": "1",
        "TORCHQ_RESULT_FILE": "/dev/termination-log",
        "PET_NNODES": "1:4",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "digits-rendezvous-0:23456",
        "PET_RDZV_CONF": "is_host=0,join_timeout=600,last_call_timeout=3,keep_alive_interval=2,"
        "keep_alive_max_attempt=3,read_timeout=60",
        "PET_MAX_RESTARTS": "10",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "25",
        "TORCHQ_MIN_WORKERS": "1",
        "TORCHQ_MAX_WORKERS": "4",
        "TORCHQ_VOLUME_TORCHQ_POD": "/torchq/pod",
        **host_file.VARIABLES,
        **FIELDS,
    }
    assert environment(made["digits-worker-0"]) == environment(made["digits-worker-1"]) == expected
    assert {
        each: made[f"digits-worker-{each}"]["metadata"]["annotations"][labels.RENDEZVOUS_ID] for each in (0, 1)
    } == {
        0: f"{UID}-0",
        1: f"{UID}-0",
    }


def test_store_is_reached_by_its_service_and_has_no_rank() -> None:
    blueprint = blueprint_of(elastic())
    made = make(elastic())
    store = made["digits-rendezvous-0"]
    assert environment(store) == {
        "PYTHONUNBUFFERED": "1",
        "TORCHQ_RESULT_FILE": "/dev/termination-log",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "25",
        "TORCHQ_RENDEZVOUS_PORT": "23456",
        "TORCHQ_MIN_WORKERS": "1",
        "TORCHQ_MAX_WORKERS": "4",
    }
    service = pod_manifests.service(blueprint, blueprint.members["digits-rendezvous-0"])
    assert (
        service["metadata"]["name"] == store["spec"]["hostname"] == store["spec"]["subdomain"] == "digits-rendezvous-0"
    )
    assert service["spec"]["selector"].items() <= store["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["port"] == 23456
    assert labels.RENDEZVOUS_ID not in store["metadata"]["annotations"]
    worker = made["digits-worker-0"]["spec"]
    assert "hostname" not in worker
    assert "ports" not in worker["containers"][0]


def test_store_on_one_machine_listens_at_the_reserved_port() -> None:
    made = make(elastic(), master_address="loopback")
    worker = environment(made["digits-worker-0"])
    assert (worker["PET_RDZV_ENDPOINT"], worker["PET_LOCAL_ADDR"]) == ("127.0.0.1:20001", "127.0.0.1")
    store = made["digits-rendezvous-0"]
    assert environment(store)["TORCHQ_RENDEZVOUS_PORT"] == "20001"
    assert store["spec"]["containers"][0]["ports"][0]["hostPort"] == 20001
    assert "hostname" not in store["spec"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"numMinReplicas": 2}, {"PET_NNODES": "2:4", "TORCHQ_MIN_WORKERS": "2"}),
        ({"maxRestarts": 3}, {"PET_MAX_RESTARTS": "3"}),
        ({"shutdownTimeoutSeconds": 7}, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}),
    ],
)
def test_policy_shows_in_environment(policy: dict[str, Any], expected: dict[str, str]) -> None:
    assert environment(make(elastic(policy))["digits-worker-1"]).items() >= expected.items()


def test_times_of_the_policy_are_those_of_the_rendezvous() -> None:
    settings = environment(make(elastic({"joinTimeoutSeconds": 90, "lastCallSeconds": 8}))["digits-worker-0"])
    assert {"join_timeout=90", "last_call_timeout=8"} <= set(settings["PET_RDZV_CONF"].split(","))


@pytest.mark.parametrize(
    ("grace", "seconds"), [(120, "115"), (None, "25"), (10, "5"), (8, "4"), (1, "0"), (0, "0"), ("90", "25")]
)
def test_processes_end_before_the_grace_of_their_pod(grace: object, seconds: str) -> None:
    patient = template()
    patient["spec"]["terminationGracePeriodSeconds"] = grace
    jobs = [
        elastic(worker=task(2, template=patient)),
        elastic({"mode": "InPlaceRestart"}, worker=task(2, template=patient)),
        job({"Master": task(), "Worker": task(2, template=patient)}),
    ]
    for made in map(make, jobs):
        assert environment(made["digits-worker-0"])["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == seconds
    assert environment(made["digits-master-0"])["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "25"


def test_a_limit_of_the_policy_is_that_of_pods_which_have_longer() -> None:
    hasty = template()
    hasty["spec"]["terminationGracePeriodSeconds"] = 10
    made = make(elastic({"shutdownTimeoutSeconds": 20}, tasks={"Master": task(template=hasty)}))
    found = [
        environment(made[name])["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] for name in ("digits-worker-0", "digits-master-0")
    ]
    assert found == ["20", "5"]


def test_master_meets_the_workers_too() -> None:
    made = make(elastic(tasks={"Master": task()}))
    assert (
        environment(made["digits-master-0"])["PET_NNODES"]
        == environment(made["digits-worker-0"])["PET_NNODES"]
        == "2:5"
    )


def test_job_without_bounds_gives_every_torchrun_the_same_ones() -> None:
    made = make(job({"Worker": task(2, dependsOn=UPSTREAM), "Rendezvous": STORE}, torchElasticPolicy={}))
    found = environment(made["digits-worker-0"])
    assert (found["PET_NNODES"], found["TORCHQ_MIN_WORKERS"]) == ("1:10000", "1")
    assert "TORCHQ_MAX_WORKERS" not in found, "no largest number is chosen"


def test_value_of_user_wins() -> None:
    own = [{"name": "PET_RDZV_ID", "value": "mine"}, {"name": "PET_MAX_RESTARTS", "value": "1"}]
    found = environment(make(elastic(worker=task(2, template=template(env=own))))["digits-worker-0"])
    assert (found["PET_RDZV_ID"], found["PET_MAX_RESTARTS"]) == ("mine", "1")


def test_pods_of_another_stage_keep_their_static_world() -> None:
    after = task(dependsOn=[{"taskType": "Worker", "phase": "Succeeded"}])
    made = make(elastic(tasks={"Evaluate": after, "AIMaster": task()}))
    assert environment(made["digits-evaluate-0"])["MASTER_ADDR"] == "digits-evaluate-0"
    assert not environment(made["digits-aimaster-0"]).keys() & {"MASTER_ADDR", "PET_RDZV_ENDPOINT"}


def test_in_place_mode_keeps_the_static_world() -> None:
    made = make(job({"Worker": task(2)}, torchElasticPolicy=BOUNDS | {"mode": "InPlaceRestart"}))
    found = environment(made["digits-worker-1"])
    assert (found["MASTER_ADDR"], "PET_NNODES" in found, "PET_RDZV_BACKEND" in found) == (
        "digits-worker-0",
        True,
        False,
    )
    assert (found["TORCHQ_MIN_WORKERS"], found["TORCHQ_MAX_WORKERS"]) == ("1", "4")
    assert "PET_RDZV_BACKEND" not in found


def test_workers_have_a_gate_also_without_gang_scheduler() -> None:
    made = make(elastic(tasks={"Master": task()}))
    gated = {name for name, each in made.items() if each["spec"].get("initContainers")}
    assert gated == {"digits-worker-0", "digits-worker-1"}
    assert labels.START not in made["digits-worker-0"]["metadata"]["annotations"]
    opened = make(elastic(), frozenset({"Worker"}))
    assert opened["digits-worker-0"]["metadata"]["annotations"][labels.START] == "open"


def test_id_changes_with_a_restart_of_the_whole_job() -> None:
    again = make(elastic(status={"restartGeneration": 3}))["digits-worker-0"]["metadata"]
    assert again["annotations"][labels.RENDEZVOUS_ID] == f"{UID}-3"
