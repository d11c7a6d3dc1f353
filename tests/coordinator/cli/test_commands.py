"""The command line against an API server: its output, its changes and its exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from coordinator.settings import Settings
from crds import labels
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.client import KubernetesCluster
from tests.support.coordinator.command import Torchq, table
from tests.support.coordinator.desk import manifest, owner, task


@pytest.fixture
def job(embedded_cluster: KubernetesCluster, namespace: str) -> str:
    """Create a job in queue a and return its handle."""
    made = embedded_cluster.create(TORCHJOBS, manifest("train", "a"), namespace)["metadata"]
    return f"{namespace}/train/{made['uid']}"


def test_queue_commands_create_list_change_and_delete_queues(
    torchq: Torchq, embedded_cluster: KubernetesCluster
) -> None:
    assert (
        torchq("queue", "create", "a", "--weight", "3", "--quota", "nvidia.com/gpu=8,jobs=20").output
        == "queue a created on torchq-local\n"
    )
    torchq("queue", "create", "b", "--hold", "--quota", "cpu=4", "--quota", "memory=1Gi")
    header, *rows = table(torchq("queue", "list").output)
    assert header[:3] == ["NAME", "WEIGHT", "STATE"]
    assert [row[:3] for row in rows] == [["a", "3", "Open"], ["b", "1", "Hold"]]
    bare = table(torchq("queue", "list", "--no-headers").output)
    assert [row[:8] for row in bare] == [row[:8] for row in rows]  # the next column is the age
    assert torchq("queue", "set-weight", "a", "5").output == "queue a: weight 5 on torchq-local\n"
    assert torchq("queue", "pause", "a").output == "queue a on hold on torchq-local\n"
    resumed = torchq("queue", "resume", "a", "b").output
    assert resumed == "queue a open on torchq-local\nqueue b open on torchq-local\n"
    spec = embedded_cluster.get(TENANT_QUEUES, "a")["spec"]
    assert (spec["weight"], spec["stopPolicy"], spec["quota"]) == (5, "None", {"nvidia.com/gpu": "8", "jobs": "20"})
    assert torchq("queue", "delete", "a").output == "queue a deleted on torchq-local\n"
    assert [row[0] for row in table(torchq("queue", "list", "--no-headers").output)] == ["b"]


def test_queue_list_shows_usage_against_the_quota(torchq: Torchq, embedded_cluster: KubernetesCluster) -> None:
    torchq("queue", "create", "a", "--quota", "cpu=4")
    status = {"pending": 2, "admitted": 1, "usage": {"cpu": "3", "jobs": "1"}, "share": "50%", "target": "60%"}
    embedded_cluster.patch(TENANT_QUEUES, "a", {"status": status}, subresource="status")
    ((_, _, _, *row, _age, _lag, _oldest),) = table(torchq("queue", "list", "--no-headers").output)
    assert row == ["2", "1", "50%", "60%", "cpu=3/4,jobs=1"]
    embedded_cluster.patch(TENANT_QUEUES, "a", {"status": {"usage": {"cpu": "4050m"}}}, subresource="status")
    assert "cpu=4050m/4(above),jobs=1" in torchq("queue", "list").output


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_lists_objects_and_settings_can_be_printed_as_json_and_yaml(
    torchq: Torchq, job: str, form: str, load: Callable[[str], Any]
) -> None:
    torchq("queue", "create", "a")
    queues = load(torchq("queue", "list", "-o", form).output)
    assert [item["metadata"]["name"] for item in queues["items"]] == ["a"]
    jobs = load(torchq("job", "list", "-o", form).output)
    assert [item["metadata"]["name"] for item in jobs["items"]] == ["train"]
    shown = load(torchq("job", "show", "train", "-o", form).output)
    assert (shown["kind"], shown["metadata"]["uid"]) == ("TorchJob", job.rpartition("/")[2])
    config = load(torchq("config", "--own", "-o", form).output)
    assert (config["threads"]["value"], config["threads"]["source"]) == (str(Settings().threads), "default")
    assert config["threads"]["meaning"] == Settings.model_fields["threads"].description


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("queue", "create", "Bad_Name"), 1, ("metadata.name",)),
        (("queue", "create", "a", "--quota", "cpu=much"), 2, ("cpu=much", "is not a quantity")),
        (("queue", "create", "a", "--quota", "limits.cpu=1"), 1, ("spec.quota",)),
        (("queue", "create", "a", "--quota", "cpu"), 2, ("NAME=QUANTITY",)),
        (("queue", "create", "a", "--weight", "0"), 2, ("--weight",)),
        (("queue", "create", "a", "--weight", "9999999"), 1, ("spec.weight",)),
        (("queue", "set-weight", "nobody", "2"), 1, ("nobody",)),
        (("queue", "set-weight", "", "2"), 1, ("metadata.name",)),
        (("queue", "set-weight", "a", "-3"), 2, ("WEIGHT", "-3 is not in the range")),
        (("queue", "pause", "nobody"), 1, ("torchq queue create nobody",)),
        (("queue", "delete", "nobody"), 1, ("nobody",)),
        (("queue", "delete", ""), 1, ("metadata.name",)),
        (("job", "show", "nobody"), 1, ("nobody",)),
        (("job", "show", ""), 1, ("metadata.name",)),
        (("job", "show", "a/b/c/d"), 2, ("NAMESPACE/NAME",)),
        (("job", "cancel", "nobody"), 1, ("nobody",)),
        (("job", "logs", "nobody"), 1, ("nobody",)),
        (("submit", "/nowhere/job.yaml"), 1, ("/nowhere/job.yaml", "No such file")),
        (("submit",), 2, ("FILE",)),
        (("submit", "/dev/null"), 1, ("/dev/null", "no TorchJob")),
        (("jobs",), 2, ("jobs",)),
        (("config", "thread"), 2, ("did you mean threads?",)),
        (("--config", "/nowhere.toml", "config"), 1, ("/nowhere.toml", "no such file")),
        (("--context", "elsewhere", "job", "list"), 1, ("elsewhere",)),
    ],
)
def test_an_invalid_command_prints_the_reason_and_sets_the_exit_code(
    torchq: Torchq, arguments: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    result = torchq(*arguments, code=code)
    assert result.stdout == ""
    assert all(word in result.stderr for word in words), result.stderr
    assert "Traceback" not in result.stderr


def test_queue_create_rejects_an_existing_queue(torchq: Torchq) -> None:
    torchq("queue", "create", "a")
    assert "already exists" in torchq("queue", "create", "a", code=1).stderr


def test_queue_delete_rejects_a_queue_with_unfinished_jobs(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    torchq("queue", "create", "a")
    refusal = torchq("queue", "delete", "a", code=1).stderr
    assert "1 unfinished" in refusal
    assert f"{namespace}/train" in refusal
    embedded_cluster.patch(TORCHJOBS, "train", {"status": {"phase": "Succeeded"}}, namespace, subresource="status")
    torchq("queue", "delete", "a")


def test_a_tenant_who_may_not_list_queues_sees_that_of_the_namespace(
    torchq: Torchq, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchq("queue", "create", namespace)
    torchq("queue", "create", "other")

    def refuse(*_: Any, **__: Any) -> Any:
        raise errors.Forbidden("queues cannot be listed: ask for the role queue-admin")

    monkeypatch.setattr(KubernetesCluster, "list", refuse)
    said = torchq("queue", "list", "--no-headers")
    assert [row[0] for row in table(said.stdout)] == [namespace]
    assert "admin" not in said.stderr


def test_a_job_is_submitted_listed_suspended_resumed_and_cancelled(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([manifest("one", "a"), manifest("two", "b")]))
    checked = torchq("submit", "--dry-run", str(file)).output
    assert checked == "2 valid on torchq-local, nothing created (dry run)\n"
    submitted = torchq("submit", str(file))
    one, two = submitted.stdout.split()
    assert submitted.stderr == "2 submitted on torchq-local\n"
    assert one.startswith(f"{namespace}/one/")
    header, *rows = table(torchq("job", "list").output)
    assert header[:5] == ["NAMESPACE", "NAME", "QUEUE", "PHASE", "PODS"]
    assert [row[:5] for row in rows] == [
        [namespace, "one", "a", "Pending", "0/2"],
        [namespace, "two", "b", "Pending", "0/2"],
    ]
    assert [row[1] for row in table(torchq("job", "list", "--queue", "b", "--no-headers").output)] == ["two"]
    assert {row[0] for row in table(torchq("job", "list", "-A", "--no-headers").output)} == {namespace}
    for handle in (one, f"{namespace}/one", "one"):
        assert torchq("job", "show", handle).output.startswith(f"Job:        {one}\n")
    torchq("job", "suspend", one)
    assert embedded_cluster.get(TORCHJOBS, "one", namespace)["spec"]["suspend"] is True
    torchq("job", "resume", "one")
    assert embedded_cluster.get(TORCHJOBS, "one", namespace)["spec"]["suspend"] is False
    assert torchq("job", "cancel", one).output == f"job {namespace}/one cancelled on torchq-local\n"
    assert embedded_cluster.get(TORCHJOBS, "one", namespace)["spec"]["cancel"] is True
    assert torchq("job", "delete", one).output == f"job {namespace}/one deleted on torchq-local\n"
    assert "one" in torchq("job", "show", "one", code=1).stderr
    assert torchq("job", "delete", two).exit_code == 0


def test_job_commands_reject_the_handle_of_an_earlier_job_of_that_name(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    embedded_cluster.delete(TORCHJOBS, "train", namespace)
    embedded_cluster.create(TORCHJOBS, manifest("train"), namespace)
    for command in ("show", "cancel", "suspend"):
        assert "another job now" in torchq("job", command, job, code=1).stderr


def test_job_show_prints_conditions_and_pods(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    when = "2026-01-01T00:00:00Z"
    condition = {
        "type": "Running",
        "status": "True",
        "reason": "Running",
        "message": "it runs",
        "lastTransitionTime": when,
    }
    admission = {"queue": "a", "attempt": 2, "epoch": 3, "pick": 9, "charge": {"cpu": 2000, "jobs": 1}, "port": 0}
    status = {"phase": "Running", "conditions": [condition], "admission": {**admission, "admittedAt": when}}
    embedded_cluster.patch(TORCHJOBS, "train", {"status": status}, namespace, subresource="status")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train-master-0",
            "labels": {labels.JOB_UID: job.rpartition("/")[2]},
            "ownerReferences": [owner(JobKey(namespace, "train", job.rpartition("/")[2]))],
        },
        "spec": task()["template"]["spec"],
    }
    embedded_cluster.create(PODS, pod, namespace)
    shown = torchq("job", "show", "train").output
    for words in ("Phase:      Running", "attempt 2, epoch 3", "it runs", "train-master-0", "Pending"):
        assert words in shown


def test_an_invalid_job_is_shown_and_its_logs_are_refused_with_the_reason(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    tasks = {
        "A": {**task(), "dependsOn": [{"taskType": "B", "phase": "Succeeded"}]},
        "B": {**task(), "dependsOn": [{"taskType": "A", "phase": "Succeeded"}]},
    }
    embedded_cluster.create(TORCHJOBS, manifest("loop", tasks=tasks), namespace)
    assert "loop" in torchq("job", "show", "loop").output
    assert "dependency cycle" in torchq("job", "logs", "loop", code=1).stderr


def test_job_logs_lists_the_pods_of_the_job_for_an_unknown_pod(torchq: Torchq, job: str) -> None:
    assert "it has Master 0..0, Worker 0..0" in torchq("job", "logs", "train", "--task", "ps", code=2).stderr
    assert "Worker 0..0" in torchq("job", "logs", "train", "--task", "Worker", "--index", "1", code=2).stderr
    assert "train-master-0" in torchq("job", "logs", "train", code=1).stderr


def test_job_logs_are_those_of_a_worker_not_of_the_store(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    body = manifest("grows", tasks={"Worker": task(2)})
    body["spec"]["torchElasticPolicy"] = {"numMinReplicas": 1}
    embedded_cluster.create(TORCHJOBS, body, namespace)
    assert "grows-worker-0" in torchq("job", "logs", "grows", code=1).stderr
    admission = {"queue": "q", "attempt": 1, "epoch": 1, "workers": 2, "indexes": "0,2", "grown": 1}
    change = {"status": {"phase": "Running", "admission": admission}}
    embedded_cluster.patch(TORCHJOBS, "grows", change, namespace, subresource="status")
    assert "grows-worker-2" in torchq("job", "logs", "grows", "--index", "2", code=1).stderr
    assert "Worker 0..1" in torchq("job", "logs", "grows", "--index", "3", code=2).stderr


def test_config_masks_secrets_and_names_the_source_of_each_setting(torchq: Torchq) -> None:
    told = torchq("config", TORCHQ_REDIS_URL="redis://me:h1dd3n@host:6379/2", TORCHQ_THREADS="3")
    assert "h1dd3n" not in told.output
    assert "note: all values are those of this command" in told.stderr
    rows = {row[0]: row[1:3] for row in table(told.stdout)}
    assert rows["redis_url"] == ["redis://host:6379/2", "TORCHQ_REDIS_URL"]
    assert rows["threads"] == ["3", "TORCHQ_THREADS"]
    assert rows["batch"] == [str(Settings().batch), "default"]


def test_crds_prints_every_definition(torchq: Torchq) -> None:
    printed = list(yaml.safe_load_all(torchq("crds").output))
    kinds = {each["spec"]["names"]["kind"] for each in printed}
    assert kinds == {"TorchJob", "TenantQueue", "ScaleOut", "ScaleIn", "ModelVersion"}


def test_an_unreachable_api_server_is_named(torchq: Torchq, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    user = {"name": "x", "user": {}}
    config = {"current-context": "x", "clusters": [cluster], "contexts": [context], "users": [user]}
    kubeconfig.write_text(json.dumps(config))
    told = torchq("job", "list", code=1, TORCHQ_KUBECONFIG=str(kubeconfig)).stderr
    assert "http://127.0.0.1:9" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("process", ["coordinator", "worker"])
@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"TORCHQ_REDIS_URL": "http://me:secret@host"}, "must begin with redis://"),
        ({"TORCHQ_KUBECONFIG": "/nowhere"}, "/nowhere"),
        ({"TORCHQ_THREADS": "0"}, "TORCHQ_THREADS"),
    ],
)
def test_a_process_with_invalid_settings_prints_the_reason_without_secrets(
    torchq: Torchq, process: str, environ: dict[str, str], words: str
) -> None:
    told = torchq(process, code=1, **environ).stderr
    assert words in told
    assert "secret" not in told


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("torchq job logs tr", ["plain,train"]),
        ("torchq job logs x", []),
        ("torchq queue show a", ["plain,a1", "plain,a2"]),
        ("torchq job list --queue a2", ["plain,a2"]),
    ],
)
def test_a_shell_completes_names_of_jobs_and_queues(
    torchq: Torchq, job: str, words: str, expected: list[str], namespace: str
) -> None:
    for queue in ("a1", "b", "a2"):
        torchq("queue", "create", queue)
    typed = words.split()
    asked = {"_TORCHQ_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(typed) - 1)}
    assert torchq(TORCHQ_NAMESPACE=namespace, **asked).output.split() == expected


def test_a_job_that_is_being_deleted_says_so_and_what_keeps_it(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    body = manifest("train", "a")
    kept = {**body, "metadata": {**body["metadata"], "finalizers": ["example.com/kept"]}}
    made = embedded_cluster.create(TORCHJOBS, kept, namespace)["metadata"]
    key = JobKey(namespace, "train", made["uid"])
    pod_labels = {labels.JOB_UID: key.uid, labels.JOB_NAME: "train"}
    metadata = {"name": "train-master-0", "labels": pod_labels, "ownerReferences": [owner(key)]}
    container = {"name": "torch", "image": "x", "resources": {"requests": {"cpu": "64"}}}
    embedded_cluster.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}, namespace
    )
    status = {"status": {"phase": "Running"}}
    embedded_cluster.patch(TORCHJOBS, "train", status, namespace, subresource="status")
    embedded_cluster.delete(TORCHJOBS, "train", namespace)
    try:
        (row,) = table(torchq("job", "list", "--no-headers").output)
        assert (row[3], row[-3:]) == ("Deleting", ["held", "by", "example.com/kept"])
        words = "finalizers keep it: example.com/kept; it waits for its pods train-master-0"
        assert "Phase:      Deleting\nDeletion:   it is being deleted since " in torchq("job", "show", "train").output
        assert words in torchq("job", "show", "train").output
        why = torchq("job", "why", "train").output
        assert why.startswith(f"job {namespace}/train does not wait: Deleting\n")
        assert words in why
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(body))
        refused = torchq("submit", str(file), code=1).stderr
        assert "still exists: it is being deleted since" in refused
        assert "submit this one when it is gone, or under another name" in refused
    finally:
        embedded_cluster.patch(TORCHJOBS, "train", {"metadata": {"finalizers": None}}, namespace)
