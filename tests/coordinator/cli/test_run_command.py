"""`torchq run` against an API server, without a node: what the command submits, prints and refuses."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from coordinator.cli.jobs import followed_output
from coordinator.rbac.permissions import USER
from coordinator.runs import request, run
from coordinator.runs.run import CodeSummary
from crds import labels
from crds.api_resources import CONFIG_MAPS, TORCHJOBS
from kube.client import KubernetesCluster
from tests.support.coordinator.command import Torchq
from tests.support.rbac.gatekeeper import Gatekeeper

Enter = Callable[[Path], None]
IMAGE = ("--image", "torch:1")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a project and change to its folder."""
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    (folder / "data").mkdir()
    (folder / "data" / "big").write_text("1")
    (folder / ".gitignore").write_text("data/\n")
    (folder / ".env").write_text("TOKEN=1")
    monkeypatch.chdir(folder)
    return folder


def test_run_prints_the_handle_and_what_was_packed(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, project: Path
) -> None:
    said = torchq("run", "-d", "--nodes", "3", "--gpus", "1", *IMAGE, "--", "torchrun", "train.py", "--lr", "3e-4")
    [item] = embedded_cluster.list(TORCHJOBS, namespace).items
    assert said.stdout == f"{namespace}/{item['metadata']['name']}/{item['metadata']['uid']}\n"
    assert item["metadata"]["name"].startswith("train-")
    digest = item["metadata"]["labels"][labels.CODE]
    assert said.stderr.startswith("code: 2 files, ")
    assert said.stderr.endswith(
        f" KiB packed, {digest[:8]} (left out: .env looks like a secret; data/ by .gitignore)\n"
    )
    tasks = item["spec"]["torchTaskSpecs"]
    assert {name: task.get("numTasks", 1) for name, task in tasks.items()} == {"Master": 1, "Worker": 2}
    main = tasks["Worker"]["template"]["spec"]["containers"][0]
    assert main["command"] == ["torchrun", "train.py", "--lr", "3e-4"]
    assert not (item["spec"].get("schedulingPolicy") or {}).get("hold")
    assert len(embedded_cluster.list(CONFIG_MAPS, namespace, label_selector=labels.CODE).items) == 1


def test_a_printed_run_that_is_submitted_is_the_same_run(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, project: Path, tmp_path: Path
) -> None:
    options = ("--nodes", "2", "--env", "A=$(x) $$", "--memory", "1Gi", *IMAGE, "--", "sh", "-c", "echo $(x)\necho $$")
    printed = torchq("run", "--dry-run", "-o", "yaml", *options).stdout
    assert embedded_cluster.list(TORCHJOBS, namespace).items == []
    assert embedded_cluster.list(CONFIG_MAPS, namespace, label_selector=labels.CODE).items == []
    assert printed.count("Unpacks the code of a job") == 1, "the second task refers to the first task"
    listed = json.loads(torchq("run", "--dry-run", "-o", "json", *options).stdout)
    kinds = [body["kind"] for body in yaml.safe_load_all(printed)]
    assert kinds == [item["kind"] for item in listed["items"]] == ["ConfigMap", "TorchJob"]
    file = tmp_path / "run.yaml"
    file.write_text(printed)
    torchq("submit", str(file))
    torchq("run", "-d", *options)
    first, second = embedded_cluster.list(TORCHJOBS, namespace).items
    assert first["spec"] == second["spec"]
    assert first["metadata"]["labels"] == second["metadata"]["labels"]
    [code] = embedded_cluster.list(CONFIG_MAPS, namespace, label_selector=labels.CODE).items
    assert {owner["uid"] for owner in code["metadata"]["ownerReferences"]} == {
        first["metadata"]["uid"], second["metadata"]["uid"]
    }  # fmt: skip


def test_code_of_a_file_that_was_changed_is_refused(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, project: Path, tmp_path: Path
) -> None:
    printed = torchq("run", "--dry-run", "-o", "yaml", *IMAGE, "--", "true").stdout
    code, job = yaml.safe_load_all(printed)
    file = tmp_path / "run.yaml"
    for content in ("AAAA", "no base64", 3):
        file.write_text(yaml.safe_dump_all([{**code, "binaryData": {"part": content}}, job]))
        assert "run.yaml: " in torchq("submit", str(file), code=1).stderr
    del job["metadata"]["name"]
    file.write_text(yaml.safe_dump_all([code, {**job, "metadata": {**job["metadata"], "generateName": "a-"}}]))
    assert "a job that comes with its code needs a name" in torchq("submit", str(file), code=1).stderr
    assert embedded_cluster.list(TORCHJOBS, namespace).items == []


def test_a_dry_run_creates_nothing(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, project: Path
) -> None:
    said = torchq("run", "--dry-run", *IMAGE, "--", "true")
    assert said.stdout.endswith("nothing created (dry run)\n")
    assert embedded_cluster.list(TORCHJOBS, namespace).items == []


def test_a_project_has_defaults_and_options_come_first(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, project: Path
) -> None:
    (project / "pyproject.toml").write_text(
        '[tool.torchq]\nimage = "torch:2"\nqueue = "team-a"\nnodes = 2\nexclude = ["*.md"]\n'
    )
    (project / "notes.md").write_text("")
    said = torchq("run", "-d", "--queue", "team-b", "--exclude", "*.txt", "--anyway", "--", "true")
    [item] = embedded_cluster.list(TORCHJOBS, namespace).items
    assert item["spec"]["schedulingPolicy"]["queue"] == "team-b"
    assert item["spec"]["torchTaskSpecs"].keys() == {"Master", "Worker"}
    assert "notes.md by exclude" in said.stderr


def test_variables_come_from_options_files_and_secrets(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, project: Path
) -> None:
    (project / "vars").write_text("A=1\nB=2\n")
    options = ("--env-file", "vars", "--env", "B=3", "--env", "C=a=b", "--secret-env", "HF_TOKEN=hf/token")
    torchq("run", "-d", *options, *IMAGE, "--", "true")
    [item] = embedded_cluster.list(TORCHJOBS, namespace).items
    env = item["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["containers"][0]["env"]
    found = {entry["name"]: entry.get("value") or entry["valueFrom"] for entry in env}
    assert (found["A"], found["B"], found["C"]) == ("1", "3", "a=b")
    assert found["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "token"}}


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 2, "the command is missing, as in: torchq run -- python train.py"),
        (("--nodes", "0", *IMAGE, "--", "true"), 2, "--nodes: must be 1 or more, not 0"),
        (("--gpus", "-1", *IMAGE, "--", "true"), 2, "--gpus: must be 0 or more, not -1"),
        (("--nodes", "two", "--", "true"), 2, "--nodes: must be a whole number, or a range as in 1..3, not 'two'"),
        (("--checkpoint-seconds", "-1", *IMAGE, "--", "true"), 2, "--checkpoint-seconds: must be 0 or more"),
        (("--cpus", "few", *IMAGE, "--", "true"), 2, "--cpus: 'few' is not a quantity"),
        (("--", "true"), 2, "--image: is missing, and this cluster runs images: give --image NAME"),
        (("--in-place", *IMAGE, "--", "true"), 2, "--in-place: only a local cluster runs in the folder itself"),
        (("--env", "HF_TOKEN=hf_abc", *IMAGE, "--", "true"), 2, "give --secret-env HF_TOKEN=NAME/hf_token"),
        (("--env", "A", *IMAGE, "--", "true"), 2, "--env: 'A' is not NAME=VALUE"),
        (("--env", "A=1", "--env", "B", *IMAGE, "--", "true"), 2, "--env 2: 'B' is not NAME=VALUE"),
        (("--secret-env", "T=x", *IMAGE, "--", "true"), 2, "--secret-env T: must be SECRET/KEY"),
        (("--env-file", "none", *IMAGE, "--", "true"), 2, "File 'none' does not exist"),
        (("--memory", "lots", *IMAGE, "--", "true"), 2, "--memory: 'lots' is not a quantity"),
        (("--replace", *IMAGE, "--", "true"), 2, "--replace needs --name"),
        (("-o", "yaml", *IMAGE, "--", "true"), 2, "-o: this option belongs to --dry-run"),
        (("--name", "Bad_Name", *IMAGE, "--", "true"), 1, "metadata.name"),
        (("--queue", "no queue", *IMAGE, "--", "true"), 1, "spec.schedulingPolicy.queue"),
        (("--exclude", "!", *IMAGE, "--", "true"), 2, "--exclude: '!' is not a pattern"),
    ],
)
def test_a_mistake_is_one_message_and_no_job(
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    project: Path,
    options: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    said = torchq("run", *options, code=code)
    assert message in said.stderr
    assert "hf_abc" not in said.stderr
    assert said.stdout == ""
    assert embedded_cluster.list(TORCHJOBS, namespace).items == []


def test_ctrl_c_says_that_the_job_goes_on(
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(followed_output, "print_lines", interrupt)
    said = torchq("run", "--name", "train", *IMAGE, "--", "true", code=130)
    assert "the job goes on: torchq job logs -f train; torchq job cancel ends it" in said.stderr
    assert [each["metadata"]["name"] for each in embedded_cluster.list(TORCHJOBS, namespace).items] == ["train"]


def test_a_name_that_is_taken_gets_the_option_that_helps(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, project: Path
) -> None:
    command = ("--name", "train", *IMAGE, "--", "true")
    first = torchq("run", "-d", *command).stdout
    said = torchq("run", "-d", *command, code=1).stderr
    hint = "give another --name, or delete that job first with --replace"
    assert said.endswith(f"Error: job {namespace}/train already exists: {hint}\n")
    assert torchq("run", "-d", "--replace", *command).stdout != first
    assert len(embedded_cluster.list(TORCHJOBS, namespace).items) == 1


def test_a_folder_that_is_gone_is_refused(torchq: Torchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "the current folder no longer exists" in torchq("run", *IMAGE, "--", "true", code=1).stderr
    os.chdir(tmp_path)


def test_code_for_a_shared_folder_is_kept_there(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, project: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    torchq("run", "-d", *IMAGE, "--", "true", TORCHQ_CODE_STORE=shared.as_uri())
    [item] = embedded_cluster.list(TORCHJOBS, namespace).items
    volumes = item["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["volumes"]
    assert volumes[1] == {"name": "torchq-store", "hostPath": {"path": str(shared), "type": "Directory"}}
    assert [path.name[:16] for path in shared.iterdir()] == [item["metadata"]["labels"][labels.CODE]]
    assert embedded_cluster.list(CONFIG_MAPS, namespace, label_selector=labels.CODE).items == []
    wrong = torchq("run", *IMAGE, "--", "true", TORCHQ_CODE_STORE="s3://bucket", code=1)
    assert "code_store: 's3://bucket' is neither empty nor a folder" in wrong.stderr


def test_the_account_of_a_user_is_enough(cluster: KubernetesCluster, namespace: str, project: Path) -> None:
    document = {"command": ["true"], "folder": str(project), "namespace": namespace, "image": "torch"}
    gate = Gatekeeper(cluster, USER)
    keys = []
    for _ in range(2):
        prepared = run.prepare(gate, request.parse(document), embedded=False, python_folder="", code_store="")
        keys.append(run.start(gate, prepared))
    [code] = cluster.list(CONFIG_MAPS, namespace, label_selector=labels.CODE).items
    assert [owner["uid"] for owner in code["metadata"]["ownerReferences"]] == [key.uid for key in keys]


def test_the_line_about_the_code_stays_short() -> None:
    left_out = [f"file{number} by .torchqignore" for number in range(9)]
    assert CodeSummary(1, 217_088, "3f9c1a70" * 8, []).describe() == ("code: 1 file, 212 KiB packed, 3f9c1a70")
    text = CodeSummary(43, 217_088, "3f9c1a70" * 8, left_out).describe()
    assert text.endswith("; file5 by .torchqignore; 3 more)")


def test_a_secret_that_a_pattern_takes_back_is_named(torchq: Torchq, project: Path) -> None:
    (project / ".torchqignore").write_text("!.env\n")
    said = torchq("run", "--dry-run", *IMAGE, "--", "torchrun", "train.py").stderr
    assert "note: packed with the job's code, although it looks like a secret: .env\n" in said
