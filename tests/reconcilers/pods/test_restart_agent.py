"""The restart agent: the sidecar in the manifest, its script in a real shell, and what pods request with it."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from crds import labels
from crds.torchjob import demand
from crds.torchjob.torchjob import TorchJob
from reconcilers.pods import pod_manifests, restart_agent, task_members
from reconcilers.settings import ReconcileSettings
from reconcilers.views import containers
from tests.support.reconcilers.builders import job, status, task, template
from tests.support.waiting import SECONDS

pytestmark = pytest.mark.servers

SHELLS = [name for name in ("sh", "bash") if shutil.which(name)]


def described(driver: str = "kubernetes", tasks: Any = None, **fields: Any) -> TorchJob:
    return job(tasks, status("Admitted", inPlace={"driver": driver}, **fields))


def pods_of(described: TorchJob) -> dict[str, dict[str, Any]]:
    assert described.admission is not None
    members = task_members.members(described, 1)
    blueprint = pod_manifests.Blueprint(
        job=described, admission=described.admission, members=members, settings=ReconcileSettings(in_place="auto")
    )
    return {name: pod_manifests.pod(blueprint, member)["spec"] for name, member in members.items()}


class TestManifest:
    def test_agent_is_the_first_init_container_and_runs_the_image_of_the_main_one(self) -> None:
        main = {"securityContext": {"runAsUser": 7}, "imagePullPolicy": "Never", "env": [{"name": "A", "value": "1"}]}
        spec = template(**main)["spec"] | {"initContainers": [{"name": "data", "image": "data:1"}]}
        before = deepcopy(spec)
        restart_agent.add_agent(spec)
        agent, other = spec["initContainers"]
        assert (agent["name"], agent["image"], agent["restartPolicy"]) == ("torchq-restart", "torch:1", "Always")
        assert (agent["securityContext"], agent["imagePullPolicy"]) == ({"runAsUser": 7}, "Never")
        assert agent["restartPolicyRules"] == [
            {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}
        ]
        assert agent["resources"]["requests"] == agent["resources"]["limits"] == {"cpu": "1m", "memory": "16Mi"}
        assert [each["name"] for each in agent["env"]] == [restart_agent.VARIABLE, "NVIDIA_VISIBLE_DEVICES"]
        assert (other, spec["containers"]) == (before["initContainers"][0], before["containers"])

    def test_agent_reads_the_annotation_with_which_a_restart_is_requested(self) -> None:
        spec = template()["spec"]
        restart_agent.add_agent(spec)
        (volume,), (mount,) = spec["volumes"], spec["initContainers"][0]["volumeMounts"]
        assert (volume["name"], mount["mountPath"]) == (mount["name"], restart_agent.FOLDER)
        (item,) = volume["downwardAPI"]["items"]
        assert (item["path"], labels.RESTART_CONTAINERS in item["fieldRef"]["fieldPath"]) == (restart_agent.FILE, True)

    @pytest.mark.parametrize(
        ("driver", "policy"), [("kubernetes", "Never"), ("kruise", "OnFailure"), ("recreate", "Never")]
    )
    def test_pods_are_made_for_the_driver_in_the_status(self, driver: str, policy: str) -> None:
        for spec in pods_of(described(driver)).values():
            agents = [each for each in spec.get("initContainers") or () if each["name"] == containers.RESTART_AGENT]
            assert (spec["restartPolicy"], bool(agents)) == (policy, driver == "kubernetes")
            assert "restartPolicyRules" not in containers.main(spec)

    def test_agent_gets_nothing_of_the_job_and_runs_before_the_start_gate(self) -> None:
        workers = {"Master": task(), "Worker": task(2, dependsOn=[{"taskType": "Master", "phase": "Running"}])}
        made = described(tasks=workers)
        elastic = job(
            {"Worker": task(2)},
            status("Admitted", inPlace={"driver": "kubernetes"}),
            torchElasticPolicy={"numMinReplicas": 1, "numMaxReplicas": 4},
            outputs={"claimName": "results"},
        )
        for spec in (*pods_of(made).values(), *pods_of(elastic).values()):
            agent = spec["initContainers"][0]
            assert agent["name"] == containers.RESTART_AGENT
            assert (len(agent["env"]), len(agent["volumeMounts"])) == (2, 1)
        gated = pods_of(elastic)["digits-worker-0"]["initContainers"]
        assert [each["name"] for each in gated] == [containers.RESTART_AGENT, containers.GATE]


class TestRequests:
    def test_pods_request_the_agent_beside_their_largest_container(self) -> None:
        spec = template(resources={"requests": {"cpu": "2", "memory": "1Gi"}})
        spec["spec"]["initContainers"] = [{"name": "a", "resources": {"requests": {"cpu": "3"}}}]
        (found,) = restart_agent.requests(described(tasks={"Worker": task() | {"template": spec}})).values()
        assert dict(found) == {"cpu": 3001, "memory": 2**30 + 2**24, "pods": 1}

    def test_pods_request_what_their_manifests_do(self) -> None:
        growing = template(resources={"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}})
        tasks = {"Worker": {"numTasks": 1, "template": growing, "memoryGrowth": {"factorPercent": 200, "max": "4Gi"}}}
        grown = described(tasks=tasks, memory={"Worker": 2**31})
        for made in (described(), grown):
            asked = restart_agent.requests(made)
            for name, spec in pods_of(made).items():
                assert dict(asked[name.split("-")[1]]) == demand.pod_demand(spec)
        assert dict(restart_agent.requests(grown)["worker"])["memory"] == 2**31 + 2**24

    def test_a_trial_pod_is_kept_with_its_rule_alone(self) -> None:
        pod = restart_agent.trial_pod(described())
        assert restart_agent.is_kept(pod)
        dropped = deepcopy(pod)
        del dropped["spec"]["initContainers"][0]["restartPolicyRules"]
        assert not restart_agent.is_kept(dropped)
        assert not restart_agent.is_kept({"spec": {"containers": []}})


class Agent:
    """The script in a shell, over a folder such as a kubelet writes."""

    def __init__(self, folder: Path, shell: str, value: str = "", script: str = restart_agent.SCRIPT) -> None:
        self.file = folder / restart_agent.FILE
        self.write(value)
        self.process = subprocess.Popen(
            [shell, "-c", script],
            env={"PATH": "/usr/bin:/bin", restart_agent.VARIABLE: str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def write(self, value: str) -> None:
        """Replace the file at once, as a kubelet does."""
        new = self.file.with_name("new")
        new.write_text(value)
        new.rename(self.file)

    def goes_on(self) -> bool:
        """Return whether the script still runs after it has looked at the file."""
        try:
            self.process.wait(0.9)
        except subprocess.TimeoutExpired:
            return True
        return False

    def ends(self) -> tuple[int, bytes]:
        """Wait for the end of the script; return its exit code and what it has printed."""
        output, _ = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, output


Start = Callable[..., Agent]


@pytest.fixture(params=SHELLS)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    started: list[Agent] = []

    def begin(*args: str) -> Agent:
        started.append(Agent(tmp_path, request.param, *args))
        return started[-1]

    yield begin
    for agent in started:
        agent.process.kill()
        agent.process.communicate()


class TestScript:
    @pytest.mark.parametrize(("before", "after"), [("", "1"), ("1", "2"), ("1", "1000000000000001")])
    def test_script_ends_with_its_code_once_the_value_has_changed(self, start: Start, before: str, after: str) -> None:
        agent = start(before)
        assert agent.goes_on(), "the value at its start is no request"
        agent.write(after)
        assert agent.ends() == (restart_agent.EXIT_CODE, b"")

    def test_script_ends_at_once_and_well_on_sigterm(self, start: Start) -> None:
        agent = start()
        assert agent.goes_on()
        agent.process.terminate()
        assert agent.ends() == (0, b"")

    def test_missing_file_is_no_request(self, start: Start) -> None:
        agent = start()
        agent.file.unlink()
        assert agent.goes_on()

    def test_script_fails_where_there_is_no_sleep(self, start: Start) -> None:
        assert start("", restart_agent.SCRIPT.replace("sleep", "no-such-program")).ends() == (127, b"")
