"""The host files of pods: who is in them, in which order, and who has none."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crds import labels
from crds.torchjob.status import Admission
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.plan import plan
from reconcilers.pods import host_file, pod_manifests, task_members
from reconcilers.settings import ReconcileSettings
from reconcilers.values import PatchPodMetadata
from reconcilers.views import pod_place
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import ADMISSION, NOW, job, observe, pod, status, task

VARIABLES = {"TORCHQ_HOSTFILE", "TORCHQ_DISCOVER_HOSTS"}


def files(found: TorchJob, **admission: Any) -> dict[str, str | None]:
    """Return the host file of each pod; None for a pod without one."""
    admitted = Admission.model_validate(ADMISSION | admission)
    members = task_members.members(found, admitted.attempt)
    blueprint = pod_manifests.Blueprint(job=found, admission=admitted, members=members, settings=ReconcileSettings())
    pods = {name: pod_manifests.pod(blueprint, member) for name, member in members.items()}
    for made in pods.values():
        names = {each["name"] for each in made["spec"]["containers"][0]["env"]}
        has_file = labels.DISCOVER_HOSTS in made["metadata"]["annotations"]
        assert names & VARIABLES == (VARIABLES if has_file else set())
        modes = {
            item["path"]: item.get("mode")
            for volume in made["spec"].get("volumes") or ()
            if volume["name"] == "torchq-pod"
            for item in volume["downwardAPI"]["items"]
        }
        assert modes == ({"hosts": None, "discover-hosts": 0o555} if has_file else {})
    return {name: made["metadata"]["annotations"].get(labels.HOSTS) for name, made in pods.items()}


def test_the_pods_of_a_world_are_in_the_order_of_ranks_with_their_processes() -> None:
    content = "digits-master-0 slots=2\ndigits-worker-0 slots=8\ndigits-worker-1 slots=8\n"
    found = files(job(), nprocPerNode={"Master": 2, "Worker": 8})
    assert found == dict.fromkeys(("digits-master-0", "digits-worker-0", "digits-worker-1"), content)


def test_each_stage_is_a_world_and_other_tasks_are_no_hosts() -> None:
    tasks = {
        "AIMaster": task(),
        "Check": task(2),
        "Worker": task(2, dependsOn=[{"taskType": "Check", "phase": "Succeeded"}]),
        "Export": task(dependsOn=[{"taskType": "Worker", "phase": "Succeeded"}]),
    }
    found = files(job(tasks))
    check = "digits-check-0 slots=1\ndigits-check-1 slots=1\n"
    worker = check.replace("check", "worker")
    assert (found["digits-check-1"], found["digits-worker-0"]) == (check, worker)
    assert (found["digits-aimaster-0"], found["digits-export-0"]) == (None, None)


def test_a_pod_alone_and_a_large_world_have_no_file() -> None:
    alone, large = job({"Worker": task(1)}), job({"Worker": task(host_file.MOST_HOSTS + 1)})
    assert files(alone) == {"digits-worker-0": None}
    assert set(files(large).values()) == {None}
    elastic = job({"Worker": task(1)}, torchElasticPolicy={"numMinReplicas": 1, "numMaxReplicas": 4})
    assert files(elastic)["digits-worker-0"] == "digits-worker-0 slots=1\n"
    assert host_file.text([host_file.Host("pod", 1)] * (host_file.MOST_HOSTS + 1)) == ""


EMPTY = pod_place.hosts_digest({labels.DISCOVER_HOSTS: host_file.SCRIPT})
GATED: dict[str, Any] = {"phase": "Pending", "shut_since": NOW.timestamp(), "hosts": EMPTY}
"""A pod at its closed gate, whose rank is not known yet."""


def written(*pods: PodView) -> list[tuple[str, set[str], str | None]]:
    """Return the writes to the pods of a job whose ranks follow from racks: pod, annotations and host file."""
    found = job(status=status("Running", admission=ADMISSION | {"topology": ["rack"]}))
    settings = ReconcileSettings(topology=("rack",))
    actions = plan(observe(found, *pods, node_labels={"n1": {"rack": "b"}, "n2": {"rack": "a"}}), settings, NOW).actions
    patches = [each for each in actions if isinstance(each, PatchPodMetadata)]
    notes = [(pod.name, patch.metadata["annotations"]) for patch in patches for pod in patch.pods]
    return [(name, set(found), found.get(labels.HOSTS)) for name, found in notes]


def test_ranks_by_nodes_come_with_the_list_in_the_write_that_opens_the_gate() -> None:
    assert set(files(job(), topology=["rack"]).values()) == {None}, "the list is not known when the pods are made"
    master, first, second = pod(node="n1", **GATED), pod("Worker", 0, **GATED), pod("Worker", 1, node="n1", **GATED)
    assert written(master, first, second) == []
    content = "digits-master-0 slots=1\ndigits-worker-1 slots=1\ndigits-worker-0 slots=1\n"
    together = {labels.START, labels.RANK, labels.TOPOLOGY, labels.HOSTS}
    found = written(master, replace(first, node="n2"), second)
    assert found == [(each.name, together, content) for each in (master, first, second)]


def test_running_pod_keeps_its_list_until_the_ranks_of_others_are_known() -> None:
    before = "digits-master-0 slots=1\ndigits-worker-0 slots=1\ndigits-worker-1 slots=1\n"
    master = pod(node="n1", place="0  ", hosts=pod_place.hosts_digest({labels.HOSTS: before}))
    first, second = pod("Worker", 0, **GATED), pod("Worker", 1, node="n1", **GATED)
    assert written(master, first, second) == []
    found = written(master, replace(first, node="n2"), second)
    content = "digits-master-0 slots=1\ndigits-worker-1 slots=1\ndigits-worker-0 slots=1\n"
    assert found[0] == (master.name, {labels.HOSTS}, content)
    assert [each[2] for each in found] == [content] * 3


def test_pod_whose_gate_an_earlier_version_has_opened_gets_its_list() -> None:
    runs = {"phase": "Running", "hosts": EMPTY}
    pods = (pod(place="0  ", **runs), pod("Worker", 0, place="2  ", **runs), pod("Worker", 1, place="1  ", **runs))
    content = "digits-master-0 slots=1\ndigits-worker-1 slots=1\ndigits-worker-0 slots=1\n"
    assert written(*pods) == [(each.name, {labels.HOSTS}, content) for each in pods]


@pytest.mark.servers
def test_the_script_prints_the_hosts_of_the_file(tmp_path: Path) -> None:
    script, file = tmp_path / "discover-hosts", tmp_path / "hosts"
    script.write_text(host_file.SCRIPT)
    script.chmod(0o555)
    for content, printed in (("a slots=2\nb slots=8\n", "a:2\nb:8\n"), ("", "")):
        file.write_text(content)
        # No other program is found: the image may have none.
        environment = {"PATH": "", "TORCHQ_HOSTFILE": str(file)}
        found = subprocess.run([os.fspath(script)], env=environment, capture_output=True, text=True, check=True)
        assert found.stdout == printed
