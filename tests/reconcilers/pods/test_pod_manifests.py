"""The contents of pods and services: names, labels, ports, environment."""

from dataclasses import replace
from typing import Any

import pytest

from crds.torchjob import demand
from crds.torchjob.status import Admission
from crds.torchjob.torchjob import TorchJob
from gang import backends
from reconcilers.plan import gangs, lifecycle
from reconcilers.pods import host_file, pod_manifests, task_members
from reconcilers.settings import ReconcileSettings, ReportAccess
from tests.support.reconcilers.builders import ADMISSION, KEY, RESERVATION, job, task, template

PREFIX = "train.distributed.io"


def make(job: TorchJob, **settings: Any) -> dict[str, dict[str, Any]]:
    """Return every pod of a job, by name."""
    blueprint = blueprint_of(job, **settings)
    return {name: pod_manifests.pod(blueprint, member) for name, member in blueprint.members.items()}


def blueprint_of(job: TorchJob, port: int = 20_001, **settings: Any) -> pod_manifests.Blueprint:
    admission = Admission.model_validate(ADMISSION | {"port": port})
    members = task_members.members(job, admission.attempt)
    return pod_manifests.Blueprint(
        job=job, admission=admission, members=members, settings=ReconcileSettings(**settings)
    )


def environment(pod: dict[str, Any], container: int = 0) -> dict[str, str]:
    found = [(each["name"], _value(each, pod)) for each in pod["spec"]["containers"][container]["env"]]
    assert len(dict(found)) == len(found), "a variable is listed twice"
    return dict(found)


def _value(variable: dict[str, Any], pod: dict[str, Any]) -> str:
    """Return the value of a variable, including a variable whose value is an annotation or a label of the pod."""
    path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
    kind, _, name = path.removeprefix("metadata.").removesuffix("']").partition("['")
    return variable["value"] if "value" in variable else pod["metadata"].get(kind, {}).get(name)


def test_pod_has_labels_annotations_and_owner() -> None:
    made = make(job(annotations={f"{PREFIX}/submit-directory": "/home/ann/digits"}))
    worker = made["digits-worker-1"]["metadata"]
    assert (worker["name"], worker["namespace"]) == ("digits-worker-1", "team")
    assert worker["labels"] == {
        f"{PREFIX}/job-name": "digits",
        f"{PREFIX}/job-uid": KEY.uid,
        f"{PREFIX}/task-type": "worker",
        f"{PREFIX}/task-index": "1",
        f"{PREFIX}/attempt": "1",
        f"{PREFIX}/restart": "0",
        f"{PREFIX}/queue": "team",
    }
    assert worker["annotations"] == {
        f"{PREFIX}/charge": '{"cpu":1000,"pods":1}',
        f"{PREFIX}/gang": f"{KEY.uid}-1-0",
        f"{PREFIX}/gang-size": "3",
        f"{PREFIX}/submit-directory": "/home/ann/digits",
        f"{PREFIX}/hosts": "digits-master-0 slots=1\ndigits-worker-0 slots=1\ndigits-worker-1 slots=1\n",
        f"{PREFIX}/discover-hosts": host_file.SCRIPT,
    }
    (owner,) = worker["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("TorchJob", "digits", KEY.uid)
    assert owner["controller"]
    assert owner["blockOwnerDeletion"]


def test_template_labels_are_kept_except_reserved_ones() -> None:
    marked = template() | {
        "metadata": {"labels": {"team": "vision", f"{PREFIX}/attempt": "9"}, "annotations": {"a": "b"}}
    }
    made = make(job({"Master": {"template": marked}}))["digits-master-0"]["metadata"]
    assert (made["labels"]["team"], made["labels"][f"{PREFIX}/attempt"], made["annotations"]["a"]) == (
        "vision",
        "1",
        "b",
    )


def test_creating_pods_does_not_change_template() -> None:
    original = job()
    before = original.model_dump_json()
    make(original)
    make(original, master_address="loopback")
    assert original.model_dump_json() == before


def test_environment_with_service_address() -> None:
    made = make(job())
    shared = {
        "PYTHONUNBUFFERED": "1",
        "TORCHQ_RESULT_FILE": "/dev/termination-log",
        "MASTER_ADDR": "digits-master-0",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "3",
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "digits-master-0",
        "PET_MASTER_PORT": "23456",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "25",
        "TORCHQ_VOLUME_TORCHQ_POD": "/torchq/pod",
        **host_file.VARIABLES,
    }
    for rank, name in enumerate(["digits-master-0", "digits-worker-0", "digits-worker-1"]):
        assert environment(made[name]) == shared | dict.fromkeys(("RANK", "NODE_RANK", "PET_NODE_RANK"), str(rank))
    master, worker = made["digits-master-0"]["spec"], made["digits-worker-0"]["spec"]
    assert master["containers"][0]["ports"] == [{"name": "torchjob-port", "containerPort": 23456, "protocol": "TCP"}]
    assert (master["hostname"], master["subdomain"]) == ("digits-master-0", "digits-master-0")
    assert "ports" not in worker["containers"][0]
    assert "hostname" not in worker


def test_environment_with_loopback_address() -> None:
    made = make(job(), master_address="loopback")
    for pod in made.values():
        assert environment(pod)["MASTER_ADDR"] == environment(pod)["PET_MASTER_ADDR"] == "127.0.0.1"
        assert environment(pod)["MASTER_PORT"] == environment(pod)["PET_MASTER_PORT"] == "20001"
    port = {"name": "torchjob-port", "containerPort": 20001, "protocol": "TCP", "hostPort": 20001}
    assert made["digits-master-0"]["spec"]["containers"][0]["ports"] == [port]
    assert "hostname" not in made["digits-master-0"]["spec"]


@pytest.mark.parametrize("name", ["MASTER_PORT", "PET_MASTER_PORT"])
def test_a_port_that_the_variables_of_rank_0_set_is_reserved_on_a_shared_machine(name: str) -> None:
    described = job({"Master": {"template": template(env=[{"name": name, "value": "29500"}])}, "Worker": task()})
    made = make(described, master_address="loopback")
    for pod in made.values():
        assert environment(pod)["MASTER_PORT"] == environment(pod)["PET_MASTER_PORT"] == "29500"
    port = {"name": "torchjob-port", "containerPort": 29500, "protocol": "TCP", "hostPort": 29500}
    assert made["digits-master-0"]["spec"]["containers"][0]["ports"] == [port]
    assert environment(make(described)["digits-worker-0"])["MASTER_PORT"] == "23456"


def test_declared_port_is_used() -> None:
    declared = template(ports=[{"name": "torchjob-port", "containerPort": 29400}, {"name": "web", "containerPort": 80}])
    described = job({"Master": {"template": declared}, "Worker": task()})
    made = make(described)
    assert environment(made["digits-worker-0"])["MASTER_PORT"] == "29400"
    assert made["digits-master-0"]["spec"]["containers"][0]["ports"] == declared["spec"]["containers"][0]["ports"]
    on_host = make(described, master_address="loopback")["digits-master-0"]["spec"]["containers"][0]["ports"]
    assert [(each["name"], each["containerPort"], each.get("hostPort")) for each in on_host] == [
        ("web", 80, None),
        ("torchjob-port", 20001, 20001),
    ]


def test_environment_of_user_overrides_and_comes_last() -> None:
    users = [{"name": "MASTER_PORT", "value": "1"}, {"name": "ME", "value": "rank $(RANK)"}]
    made = make(job({"Master": {"template": template(env=users)}}))["digits-master-0"]
    assert environment(made)["MASTER_PORT"] == "1"
    names = [each["name"] for each in made["spec"]["containers"][0]["env"]]
    assert names.index("RANK") < names.index("ME")


def test_every_container_gets_environment_and_termination_message_policy() -> None:
    spec = {
        "initContainers": [{"name": "fetch"}],
        "containers": [{"name": "side", "terminationMessagePolicy": "File"}, {"name": "torch"}],
    }
    made = make(job({"Master": {"template": {"spec": spec}}}), master_address="loopback")["digits-master-0"]["spec"]
    assert environment({"spec": {"containers": made["initContainers"]}})["RANK"] == "0"
    assert environment({"spec": made}, 0)["RANK"] == environment({"spec": made}, 1)["RANK"] == "0"
    assert [each["terminationMessagePolicy"] for each in made["containers"]] == ["File", "FallbackToLogsOnError"]
    assert [len(each.get("ports", [])) for each in made["containers"]] == [0, 1], "the main container declares the port"


@pytest.mark.parametrize(
    ("policy", "pods_policy"), [("Always", "Always"), ("OnFailure", "Never"), ("ExitCode", "Never"), ("Never", "Never")]
)
def test_restart_policy_of_pod_is_never_unless_always(policy: str, pods_policy: str) -> None:
    made = make(job({"Trainer": task(restartPolicy=policy)}))["digits-trainer-0"]
    assert made["spec"]["restartPolicy"] == pods_policy


def test_single_pod_uses_loopback_as_master_address() -> None:
    alone = job({"Master": task()})
    made = make(alone)["digits-master-0"]
    assert (environment(made)["MASTER_ADDR"], environment(made)["PET_MASTER_ADDR"]) == ("127.0.0.1", "127.0.0.1")
    assert made["spec"]["containers"][0]["ports"][0]["containerPort"] == 23456
    assert "subdomain" not in made["spec"]
    for looked_for in (job({"AIMaster": task(), "Master": task()}), job({"Master": task()}, torchElasticPolicy={})):
        made = make(looked_for)["digits-master-0"]
        assert environment(made)["MASTER_ADDR"] == made["spec"]["subdomain"] == "digits-master-0"


def test_first_pod_of_first_task_is_rank_0_without_master() -> None:
    made = make(job({"Trainer": task(2), "Evaluator": task()}))
    assert {environment(each)["MASTER_ADDR"] for each in made.values()} == {"digits-evaluator-0"}
    assert {name: environment(each)["RANK"] for name, each in made.items()} == {
        "digits-evaluator-0": "0",
        "digits-trainer-0": "1",
        "digits-trainer-1": "2",
    }
    assert made["digits-evaluator-0"]["spec"]["subdomain"] == "digits-evaluator-0"


def test_aimaster_has_no_rank() -> None:
    made = make(job({"AIMaster": task(), "Master": task(), "Worker": task()}))
    brain = environment(made["digits-aimaster-0"])
    assert (brain["MASTER_ADDR"], "RANK" in brain, "WORLD_SIZE" in brain) == ("digits-master-0", False, False)
    assert environment(made["digits-worker-0"])["RANK"] == "1"
    assert environment(made["digits-worker-0"])["WORLD_SIZE"] == "2"
    alone = environment(make(job({"AIMaster": task()}))["digits-aimaster-0"])
    assert set(alone) == {"PYTHONUNBUFFERED", "TORCHQ_RESULT_FILE", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"}


def test_each_stage_has_its_own_ranks_and_gang() -> None:
    steps = {
        "Prepare": task(),
        "Master": task(dependsOn=[{"taskType": "Prepare", "phase": "Succeeded"}]),
        "Worker": task(2, dependsOn=[{"taskType": "Master", "phase": "Running"}]),
        "Evaluate": task(dependsOn=[{"taskType": "Worker", "phase": "Succeeded"}]),
    }
    made = make(job(steps))
    worlds = {name: (environment(each)["RANK"], environment(each)["WORLD_SIZE"]) for name, each in made.items()}
    assert worlds == {
        "digits-master-0": ("0", "3"),
        "digits-evaluate-0": ("0", "1"),
        "digits-prepare-0": ("0", "1"),
        "digits-worker-0": ("1", "3"),
        "digits-worker-1": ("2", "3"),
    }
    gangs = {name: each["metadata"]["annotations"][f"{PREFIX}/gang"] for name, each in made.items()}
    assert len(set(gangs.values())) == 4, "the pods are created at four moments"
    assert gangs["digits-worker-0"] == gangs["digits-worker-1"]


GPUS = {"limits": {"nvidia.com/gpu": 8}}
EIGHT = {"Master": task(), "Worker": task(2, dependsOn=[], template=template(resources=GPUS))}


def admitted(described: TorchJob) -> dict[str, dict[str, Any]]:
    """Return every pod of a job that was admitted by its reservation, by name."""
    reservation = replace(RESERVATION, charge=described.charge)
    admission = lifecycle.current_admission(described, reservation)
    assert admission is not None
    members = task_members.members(described, admission.attempt)
    blueprint = pod_manifests.Blueprint(
        job=described, admission=admission, members=members, settings=ReconcileSettings()
    )
    return {name: pod_manifests.pod(blueprint, member) for name, member in members.items()}


IN_PLACE = {"mode": "InPlaceRestart"}
"""The mode of an elastic job whose pods get their ranks from torchq."""


def processes(made: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: environment(pod)["PET_NPROC_PER_NODE"] for name, pod in made.items()}


@pytest.mark.parametrize(
    ("spec", "master", "worker"),
    [
        ({}, "1", "8"),
        ({"nprocPerNode": 2}, "2", "2"),
        ({"torchElasticPolicy": IN_PLACE}, "1", "8"),
        ({"torchElasticPolicy": {"nprocPerNode": 4, **IN_PLACE}}, "4", "4"),
        ({"torchElasticPolicy": {"nprocPerNode": 1, **IN_PLACE}}, "1", "1"),
        ({"nprocPerNode": 1}, "1", "1"),
    ],
)
def test_processes_per_pod_follow_gpus_or_spec(spec: dict[str, Any], master: str, worker: str) -> None:
    made = admitted(job(EIGHT, **spec))
    assert processes(made) == {"digits-master-0": master, "digits-worker-0": worker, "digits-worker-1": worker}
    assert {environment(pod)["WORLD_SIZE"] for pod in made.values()} == {"3"}


def test_environment_of_user_overrides_number_of_processes() -> None:
    own = template(resources=GPUS, env=[{"name": "PET_NPROC_PER_NODE", "value": "5"}])
    made = admitted(job({"Worker": task(template=own)}, nprocPerNode=2))
    assert processes(made) == {"digits-worker-0": "5"}


@pytest.mark.parametrize(("spec", "count"), [({}, "1"), ({"torchElasticPolicy": {"nprocPerNode": 4, **IN_PLACE}}, "4")])
def test_admission_without_processes_keeps_the_earlier_default(spec: dict[str, Any], count: str) -> None:
    assert set(processes(make(job(EIGHT, **spec))).values()) == {count}


def test_pod_created_after_restart_keeps_gang_annotation() -> None:
    gang = f"{PREFIX}/gang"
    again = make(job(status={"restartCount": 3, "restartGeneration": 2}))["digits-master-0"]["metadata"]
    assert again["annotations"][gang] == make(job())["digits-master-0"]["metadata"]["annotations"][gang]
    assert again["labels"][f"{PREFIX}/restart"] == "2"


def test_service_selects_rank_0_before_it_is_ready() -> None:
    blueprint = blueprint_of(job())
    made = pod_manifests.service(blueprint, blueprint.members["digits-master-0"])
    spec = made["spec"]
    assert (made["metadata"]["name"], spec["clusterIP"], spec["publishNotReadyAddresses"]) == (
        "digits-master-0",
        "None",
        True,
    )
    labels = pod_manifests.pod(blueprint, blueprint.members["digits-master-0"])["metadata"]["labels"]
    assert spec["selector"].items() <= labels.items()
    assert spec["selector"][f"{PREFIX}/task-index"] == "0"
    assert spec["ports"] == [{"name": "torchjob-port", "port": 23456, "targetPort": 23456, "protocol": "TCP"}]


def bound(described: TorchJob, scheduler: str = "volcano", port: int = 0, **settings: Any) -> dict[str, dict[str, Any]]:
    """Return every pod of a job that a gang scheduler binds, by name."""
    admission = Admission.model_validate(ADMISSION | {"port": port, "gangScheduler": scheduler})
    scheduling = gangs.Scheduling(job=described, admission=admission, backend=backends.get_backend(scheduler))
    blueprint = pod_manifests.Blueprint(
        job=described,
        admission=admission,
        members=task_members.members(described, admission.attempt),
        settings=ReconcileSettings(**settings),
        backend=scheduling.backend,
        gangs={stage.index: scheduling.gang(stage) for stage in described.spec.stages},
        gang_queue=scheduling.queue,
    )
    return {name: pod_manifests.pod(blueprint, member) for name, member in blueprint.members.items()}


def test_gang_pod_has_only_the_fields_of_its_scheduler() -> None:
    described = template()
    described["metadata"] = {"annotations": {"scheduling.k8s.io/group-name": "mine", "a": "b"}}
    made = bound(job({"Master": {"template": described}, "AIMaster": task()}))
    notes = made["digits-master-0"]["metadata"]["annotations"]
    assert (notes["scheduling.k8s.io/group-name"], notes["volcano.sh/task-spec"], notes["a"]) == (
        "digits-0",
        "master",
        "b",
    )
    assert f"{PREFIX}/gang" not in notes
    brain = made["digits-aimaster-0"]
    assert brain["spec"]["schedulerName"] == "volcano"
    assert "scheduling.k8s.io/group-name" not in brain["metadata"]["annotations"]
    assert bound(job(), "coscheduling")["digits-master-0"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"]
    assert bound(job(), "kubernetes")["digits-master-0"]["spec"]["schedulingGroup"] == {"podGroupName": "digits-0"}


@pytest.mark.parametrize("container", [{}, {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}])
def test_gate_does_not_raise_requests_of_pod(container: dict[str, Any]) -> None:
    described = job({"Master": task(), "Worker": {"template": template(**container)}})
    made = bound(described)["digits-worker-0"]["spec"]
    assert made["initContainers"][0]["name"] == "torchq-start"
    assert demand.pod_demand(made) == demand.pod_charge(described.spec.tasks["Worker"])
    assert list(make(described)["digits-worker-0"]["spec"].get("initContainers", [])) == []


def test_last_pods_of_task_are_spot_tasks() -> None:
    spot = {"numSpotTasks": 2, "priorityClassName": "cheap", "labels": {"spot": "yes", f"{PREFIX}/attempt": "9"}}
    described = template()
    described["metadata"] = {"labels": {"spot": "no"}}
    described["spec"]["priorityClassName"] = "dear"
    made = make(job({"Worker": {"numTasks": 3, "template": described, "spotTaskSpec": spot}}))
    classes = [made[f"digits-worker-{each}"]["spec"]["priorityClassName"] for each in range(3)]
    assert classes == ["dear", "cheap", "cheap"]
    assert [made[f"digits-worker-{each}"]["metadata"]["labels"]["spot"] for each in range(3)] == ["no", "yes", "yes"]
    assert made["digits-worker-2"]["metadata"]["labels"][f"{PREFIX}/attempt"] == "1"
    del spot["priorityClassName"]
    kept = make(job({"Worker": {"numTasks": 3, "template": described, "spotTaskSpec": spot}}))
    assert kept["digits-worker-2"]["spec"]["priorityClassName"] == "dear"


def test_priority_class_of_job_applies_to_gang_pods_without_their_own() -> None:
    named = template()
    named["spec"]["priorityClassName"] = "mine"
    tasks_of = {"Master": {"template": named}, "Worker": task(), "AIMaster": task()}
    described = job(tasks_of, schedulingPolicy={"priorityClassName": "high"})
    classes = {name: each["spec"].get("priorityClassName") for name, each in bound(described).items()}
    assert classes == {"digits-master-0": "mine", "digits-worker-0": "high", "digits-aimaster-0": None}
    alone = {name: each["spec"].get("priorityClassName") for name, each in make(described).items()}
    assert alone == {"digits-master-0": "mine", "digits-worker-0": None, "digits-aimaster-0": None}


class TestHostNetwork:
    def described(self, **container: Any) -> TorchJob:
        shared = template(**container)
        shared["spec"]["hostNetwork"] = True
        return job({"Master": {"template": shared}, "Worker": {"template": shared}})

    def test_reserved_port_is_used_on_host_network(self) -> None:
        made = bound(self.described(), port=31_007)
        master, worker = made["digits-master-0"], made["digits-worker-0"]
        port = {"name": "torchjob-port", "containerPort": 31_007, "protocol": "TCP", "hostPort": 31_007}
        assert master["spec"]["containers"][0]["ports"] == [port]
        assert {environment(each)["MASTER_PORT"] for each in made.values()} == {"31007"}
        assert environment(worker)["MASTER_ADDR"] == "digits-master-0"
        assert "ports" not in worker["spec"]["containers"][0]
        assert {each["spec"]["dnsPolicy"] for each in made.values()} == {"ClusterFirstWithHostNet"}

    def test_declared_port_is_used_on_host_network_without_reserved_port(self) -> None:
        ports = [{"name": "torchjob-port", "containerPort": 29_400}]
        made = bound(self.described(ports=ports))["digits-master-0"]
        assert environment(made)["MASTER_PORT"] == "29400"
        assert made["spec"]["containers"][0]["ports"][0]["hostPort"] == 29_400

    def test_dns_policy_of_template_is_kept(self) -> None:
        own = template()
        own["spec"] |= {"hostNetwork": True, "dnsPolicy": "None"}
        assert make(job({"Master": {"template": own}}))["digits-master-0"]["spec"]["dnsPolicy"] == "None"
        assert "dnsPolicy" not in make(job())["digits-master-0"]["spec"]


def test_pods_get_what_they_need_to_report_only_where_they_may() -> None:
    access = ReportAccess("http://10.0.0.1:8090", "token of {}".format, kubeflow_progress=False)
    without, reporting = make(job()), make(job(), reports=access)
    added = {
        "TORCHQ_REPORT_URL": "http://10.0.0.1:8090",
        "TORCHQ_REPORT_TOKEN": f"token of {KEY.uid}",
        "TORCHQ_JOB": "team/digits",
    }
    for name, pod in reporting.items():
        assert environment(pod) == environment(without[name]) | added | {"TORCHQ_POD": name}
    assert not [name for pod in without.values() for name in environment(pod) if name.startswith("TORCHQ_REPORT")]


def test_pods_find_the_progress_protocol_and_its_token_in_a_file() -> None:
    access = ReportAccess("http://10.0.0.1:8090", "token of {}".format)
    without, found = make(job()), make(job(), reports=access)
    name = "digits-worker-0"
    names = {key for key in environment(found[name]) if key not in environment(without[name])}
    assert names - {"TORCHQ_REPORT_URL", "TORCHQ_REPORT_TOKEN", "TORCHQ_JOB", "TORCHQ_POD"} == {
        "KUBEFLOW_TRAINER_SERVER_URL",
        "KUBEFLOW_TRAINER_SERVER_TOKEN",
    }
    env = environment(found[name])
    path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/digits/status"
    assert env["KUBEFLOW_TRAINER_SERVER_URL"] == f"http://10.0.0.1:8090{path}?pod={name}"
    folder, _, file = env["KUBEFLOW_TRAINER_SERVER_TOKEN"].partition("/")
    [volume] = [each for each in found[name]["spec"]["volumes"] if each["name"] == "torchq-pod"]
    [item] = [each for each in volume["downwardAPI"]["items"] if each["path"] == file]
    annotation = item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
    assert found[name]["metadata"]["annotations"][annotation] == f"token of {KEY.uid}"
    [mount] = [each for each in found[name]["spec"]["containers"][0]["volumeMounts"] if each["name"] == "torchq-pod"]
    assert (folder, mount["mountPath"]) == ("$(TORCHQ_VOLUME_TORCHQ_POD)", env["TORCHQ_VOLUME_TORCHQ_POD"])


def test_a_server_of_the_user_takes_precedence_and_gets_no_token() -> None:
    own = template()
    own["spec"]["containers"][0]["env"] = [{"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "https://other"}]
    access = ReportAccess("http://10.0.0.1:8090", "token of {}".format)
    env = environment(make(job({"Master": {"template": own}}), reports=access)["digits-master-0"])
    assert env["KUBEFLOW_TRAINER_SERVER_URL"] == "https://other"
    assert "KUBEFLOW_TRAINER_SERVER_TOKEN" not in env
    taken = template()
    taken["spec"]["volumes"] = [{"name": "torchq-pod", "emptyDir": {}}]
    pod = make(job({"Master": {"template": taken}}), reports=access)["digits-master-0"]
    assert pod["spec"]["volumes"] == taken["spec"]["volumes"]
    assert not [name for name in environment(pod) if name.startswith("KUBEFLOW_")]
