"""Invalid input: a command prints one message that names the field, exits with an error code, and creates nothing."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from coordinator.cli.refusals import words
from crds.api_resources import TORCHJOBS
from kube import errors
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import EVERYWHERE, Stack, clean_environment, fresh, run, until

Edit = Callable[[dict[str, Any]], Any]
TASKS = "spec.torchTaskSpecs"


def _tasks(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["spec"]["torchTaskSpecs"]
    return found


def _container(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _tasks(body)["Worker"]["template"]["spec"]["containers"][0]
    return found


def _depend(body: dict[str, Any], task: str, upstream: str) -> None:
    _tasks(body)[task]["dependsOn"] = [{"taskType": upstream}]


SEEN_BY_THE_SERVER: dict[str, tuple[Edit, str]] = {
    "unknown field": (lambda body: body["spec"].update(minMember={"Worker": 1}), "spec.minMember"),
    "unknown field of a task": (lambda body: _tasks(body)["Worker"].update(replicas=2), f"{TASKS}.Worker.replicas"),
    "negative numTasks": (lambda body: _tasks(body)["Worker"].update(numTasks=-1), f"{TASKS}.Worker.numTasks"),
    "numTasks of the wrong type": (
        lambda body: _tasks(body)["Worker"].update(numTasks="two"),
        f"{TASKS}.Worker.numTasks",
    ),
    "two masters": (lambda body: _tasks(body)["Master"].update(numTasks=2), f"{TASKS}[Master]"),
    "minMembers above numTasks": (lambda body: body["spec"].update(minMembers={"Worker": 5}), "spec.minMembers"),
    "unknown restartPolicy": (
        lambda body: _tasks(body)["Worker"].update(restartPolicy="Maybe"),
        f"{TASKS}.Worker.restartPolicy",
    ),
    "dependency on an unknown task": (lambda body: _depend(body, "Worker", "Chief"), f"{TASKS}[Worker].dependsOn"),
    "no tasks": (lambda body: body["spec"].update(torchTaskSpecs={}), TASKS),
    "an invalid name": (lambda body: body["metadata"].update(name="Not_A_Name"), "metadata.name"),
}
SEEN_BY_THE_CLIENT: dict[str, tuple[Edit, str]] = {
    "cycle": (
        lambda body: (_depend(body, "Worker", "Master"), _depend(body, "Master", "Worker")),
        "dependency cycle Master -> Worker -> Master",
    ),
    "a pod field that does not exist": (
        lambda body: _container(body).update(comand=["python"]),
        f"{TASKS}.Worker.template.spec.containers[0].comand",
    ),
    "an invalid quantity": (
        lambda body: _container(body).update(resources={"requests": {"cpu": "many"}}),
        f"{TASKS}.Worker.template.spec.containers[0].resources.requests",
    ),
}


def edited(edit: Edit, name: str) -> dict[str, Any]:
    """Return a job that was valid before this edit."""
    body = copy.deepcopy(job(name, python("pass"), workers=2))
    edit(body)
    return body


@pytest.mark.parametrize("case", SEEN_BY_THE_SERVER)
def test_submit_rejects_an_invalid_job_in_plain_words_for_those_of_the_api_server(shared: Stack, case: str) -> None:
    edit, field = SEEN_BY_THE_SERVER[case]
    body = edited(edit, fresh())
    with pytest.raises(errors.ClusterError) as refusal:
        shared.api.create(TORCHJOBS, body, "default")
    causes = getattr(refusal.value, "causes", ())
    said = shared.try_run("submit", "-", text=json.dumps(body))
    assert (said.code, said.out) == (1, "")
    assert field in said.err
    for cause in words.plain_causes(causes, body):
        assert f"{cause.field}: {cause.message}" in said.err
    assert "Invalid value" not in said.err
    assert not shared.exists(body["metadata"]["name"])


@pytest.mark.parametrize("case", SEEN_BY_THE_CLIENT)
def test_submit_rejects_what_the_schema_cannot_check(shared: Stack, case: str) -> None:
    edit, expected = SEEN_BY_THE_CLIENT[case]
    body = edited(edit, fresh())
    said = shared.try_run("submit", "-", text=json.dumps(body))
    assert (said.code, said.out) == (1, "")
    assert expected in said.err
    assert not shared.exists(body["metadata"]["name"])


NEVER_RUNS: dict[str, tuple[Edit, str]] = {
    "more than the machine": (
        lambda body: _container(body).update(resources={"requests": {"cpu": "64"}}),
        f"{TASKS}.Worker.template.spec.containers: a pod asks for 64 of cpu, and the whole node has 4",
    ),
    "more than the machine for all pods together": (
        lambda body: _container(body).update(resources={"requests": {"cpu": "3"}}),
        f"{TASKS}: the job asks for 7 of cpu, all nodes together have 4: ask for less",
    ),
    "a resource that the machine lacks": (
        lambda body: _container(body).update(resources={"limits": {"nvidia.com/gpu": "1"}}),
        "1 of nvidia.com/gpu, and the whole node has 0",
    ),
    "no command": (
        lambda body: _container(body).pop("command"),
        f"{TASKS}.Worker.template.spec.containers[0].command: is required",
    ),
    "a PersistentVolumeClaim": (
        lambda body: _tasks(body)["Worker"]["template"]["spec"].update(
            volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        ),
        f"{TASKS}.Worker.template.spec.volumes[0].persistentVolumeClaim: only emptyDir",
    ),
    "a mount at an absolute path": (
        lambda body: (
            _tasks(body)["Worker"]["template"]["spec"].update(volumes=[{"name": "data", "emptyDir": {}}]),
            _container(body).update(volumeMounts=[{"name": "data", "mountPath": "/data"}]),
        ),
        f"{TASKS}.Worker.template.spec.containers[0].volumeMounts[0].mountPath: '/data' cannot be mounted",
    ),
    "an unknown queue": (
        lambda body: body["spec"].setdefault("schedulingPolicy", {}).update(queue="defalt"),
        "spec.schedulingPolicy.queue: there is no TenantQueue defalt: name another queue",
    ),
    "no such PriorityClass": (
        lambda body: body["spec"].setdefault("schedulingPolicy", {}).update(priorityClassName="gold"),
        "spec.schedulingPolicy.priorityClassName: there is no PriorityClass gold",
    ),
}


@pytest.mark.parametrize("case", NEVER_RUNS)
def test_submit_rejects_a_job_that_can_never_run(shared: Stack, case: str) -> None:
    edit, words = NEVER_RUNS[case]
    body, good = edited(edit, fresh()), job(fresh(), python("pass"))
    for options in ((), ("--dry-run",)):
        said = shared.try_run("submit", *options, "-", text="\n---\n".join(map(json.dumps, (good, body))))
        assert (said.code, said.out) == (1, "")
        assert words in said.err
        assert "--anyway" in said.err
    assert not shared.exists(body["metadata"]["name"])
    assert not shared.exists(good["metadata"]["name"])


@EVERYWHERE
def test_a_job_over_the_quota_is_rejected_or_waits_with_anyway(stack: Stack) -> None:
    queue, name = fresh("queue"), fresh()
    stack.torchq("queue", "create", queue, "--quota", "cpu=1")
    body = job(name, python("pass"), cpu="2", queue=queue)
    # The coordinator knows the quota only after it has seen the queue.
    until(lambda: stack.try_run("submit", "--dry-run", "-", text=json.dumps(body)).code)
    said = stack.try_run("submit", "-", text=json.dumps(body))
    assert (said.code, said.out) == (1, "")
    assert f"the job asks for 2 of cpu, queue {queue} can give 1 at most (its quota)" in said.err
    assert not stack.exists(name)
    assert len(stack.submit(body, anyway=True)) == 1
    stack.reach(name, "Queued")
    until(lambda: stack.output_json("job", "why", name), lambda told: told["code"] == "ExceedsQuota")
    assert "not picked until that changes" in stack.torchq("job", "why", name)
    stack.torchq("job", "cancel", name)


def test_submit_creates_nothing_if_one_file_is_invalid(shared: Stack) -> None:
    good, bad = fresh(), fresh()
    (shared.folder / "good.yaml").write_text(yaml.safe_dump(job(good, python("pass"))))
    (shared.folder / "bad.yaml").write_text(yaml.safe_dump(edited(SEEN_BY_THE_SERVER["two masters"][0], bad)))
    said = shared.try_run("submit", "good.yaml", "bad.yaml")
    assert (said.code, said.out) == (1, "")
    assert "bad.yaml" in said.err
    assert "good.yaml" not in said.err
    assert not shared.exists(good)
    assert not shared.exists(bad)


def test_submit_creates_nothing_if_a_name_occurs_twice(stack: Stack) -> None:
    name, other = fresh(), fresh()
    twice = [job(other, python("pass")), job(name, python("pass")), job(name, python("pass"))]
    said = stack.try_run("submit", "-", text="\n---\n".join(map(json.dumps, twice)))
    assert (said.code, said.out) == (1, "")
    assert name in said.err
    assert not stack.exists(name)
    assert not stack.exists(other)


def test_submit_creates_nothing_if_a_name_exists_already(stack: Stack) -> None:
    taken, other = fresh(), fresh()
    stack.submit(job(taken, python("pass")))
    said = stack.try_run(
        "submit", "-", text="\n---\n".join(json.dumps(job(each, python("pass"))) for each in (other, taken))
    )
    assert (said.code, said.out) == (1, "")
    assert taken in said.err
    assert not stack.exists(other)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: [", "not YAML"),
        ("just words", "not a TorchJob"),
        ("apiVersion: v1\nkind: Pod\n", "not a TorchJob"),
        ("", "no TorchJob"),
    ],
)
def test_submit_rejects_a_file_without_a_job(shared: Stack, text: str, words: str) -> None:
    said = shared.try_run("submit", "-", text=text)
    assert (said.code, said.out) == (1, "")
    assert words in said.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("submit", "missing.yaml"), 1, "missing.yaml: No such file"),
        (("job", "show", "nobody"), 1, "nobody"),
        (("job", "cancel", "default/nobody/uid"), 1, "nobody"),
        (("job", "logs", "-f", "nobody"), 1, "nobody"),
        (("queue", "set-weight", "nobody", "2"), 1, "nobody"),
        (("queue", "create", "Not_A_Name"), 1, "metadata.name"),
        (("queue", "create", "q", "--quota", "cpu=many"), 2, "'many' is not a quantity"),
        (("queue", "create", "q", "--quota", "cpu"), 2, "NAME=QUANTITY"),
        (("queue", "create", "q", "--weight", "0"), 2, "--weight"),
        (("--config", "missing.toml", "queue", "list"), 1, "missing.toml"),
        (("--kubeconfig", "missing", "queue", "list"), 1, "missing"),
    ],
)
def test_an_invalid_command_line_ends_with_a_message_and_exit_code(
    shared: Stack, arguments: tuple[str, ...], code: int, words: str
) -> None:
    said = shared.try_run(*arguments)
    assert said.code == code, said
    assert words in said.err


def test_an_invalid_setting_is_reported_with_its_source(shared: Stack) -> None:
    environment = clean_environment(TORCHQ_THREADS="many", TORCHQ_KUBECONFIG=str(shared.layout.kubeconfig))
    said = run("queue", "list", cwd=shared.folder, environment=environment)
    assert said.code == 1
    assert "threads" in said.err
    assert "TORCHQ_THREADS" in said.err
    assert "Traceback" not in said.err


def test_an_unreachable_api_server_is_reported_with_its_url(shared: Stack, tmp_path: Path) -> None:
    config = yaml.safe_load(shared.layout.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"  # the discard port, where no server listens
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    said = shared.try_run("--kubeconfig", str(tmp_path / "kubeconfig"), "queue", "list")
    assert said.code == 1
    assert "http://127.0.0.1:9" in said.err


def test_a_dependency_cycle_created_through_the_api_fails_only_that_job(stack: Stack) -> None:
    cyclic, other, before = fresh(), fresh(), stack.pids()
    stack.api.create(TORCHJOBS, edited(SEEN_BY_THE_CLIENT["cycle"][0], cyclic), "default")
    failed = stack.reach(cyclic, "Failed")
    [condition] = [each for each in failed["status"]["conditions"] if each["type"] == "Failed"]
    assert condition["reason"] == "InvalidSpec"
    assert "dependency cycle Master -> Worker -> Master" in condition["message"]
    stack.submit(job(other, python("pass")))
    stack.reach(other, "Succeeded")
    until(stack.is_settled)
    assert stack.job(cyclic)["metadata"]["resourceVersion"] == failed["metadata"]["resourceVersion"]
    assert stack.pids() == before
    assert "InvalidSpec" in stack.torchq("job", "show", cyclic)
