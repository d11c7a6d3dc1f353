"""The logs of a TorchJob's pods that are gone: which logs are kept, for how long, and how clients read these logs."""

import itertools
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from crds import generate, labels
from crds.api_resources import TORCHJOBS, job_logs_path
from crds.keys import JobKey
from embedded import job_logs, log_times
from embedded import pod as pod_fields
from embedded.apiserver.http import log_answers as http_job_logs
from embedded.layout import Layout
from embedded.log_writer import LogWriter
from embedded.node.pods.kept_logs import KeptLogs, LogBounds
from embedded.pod import LocalPod
from tests.support.crds import builders
from tests.support.embedded.stage import Stage
from tests.support.kube import servers
from tests.support.kube.servers import Server
from tests.support.waiting import until

KIB = 1024
_NUMBERS = itertools.count(1)
JOB = JobKey("ns", "train", "job-uid")


def metadata(job: JobKey, **more: str) -> dict[str, Any]:
    """Return the metadata of a pod that belongs to a job."""
    owner = {"apiVersion": TORCHJOBS.api_version, "kind": "TorchJob", "name": job.name, "uid": job.uid}
    found = {
        labels.JOB_NAME: job.name,
        labels.JOB_UID: job.uid,
        labels.TASK_TYPE: "worker",
        labels.TASK_INDEX: "0",
        labels.ATTEMPT: "3",
        labels.RESTART: "1",
    }
    return {"labels": found, "ownerReferences": [{**owner, "controller": True}], **more}


def local_pod(uid: str, job: JobKey = JOB) -> LocalPod:
    own = {"name": "train-worker-0", "namespace": job.namespace, "uid": uid}
    made = metadata(job, **own, creationTimestamp="2026-01-01T00:00:00Z")
    return pod_fields.read({"metadata": made, "spec": {"containers": [{"name": "torch", "command": ["true"]}]}})


def run(layout: Layout, pod: LocalPod, text: bytes, restart: int = 0, most: int = 1024 * KIB) -> Path:
    """Write the files of a run that has printed a text and ended."""
    folder = layout.container(pod.uid, "torch", restart)
    folder.mkdir(parents=True)
    log = LogWriter(str(folder), most)
    assert log.open() == ""
    log.write(text)
    (folder / "started").write_text(json.dumps({"pid": 1, "startTicks": 1, "startedAt": 1000.0 + restart}))
    (folder / "exited").write_text(json.dumps({"exitCode": 1, "finishedAt": 1000.5 + restart}))
    return folder


def text_of(layout: Layout, run_id: str, job: JobKey = JOB) -> bytes:
    found = job_logs.find(layout, job, run_id)
    assert found is not None
    return b"".join(path.read_bytes() for path in sorted(found.folder.glob("output*")))


def test_the_end_of_each_run_is_kept_with_its_position_and_times(tmp_path: Path) -> None:
    layout, pod = Layout(tmp_path), local_pod("u1")
    layout.pod("u1").mkdir(parents=True)
    logs = KeptLogs(layout, LogBounds(run=100))
    logs.register(pod)
    text = b"".join(b"line %d\n" % number for number in range(100))
    folder = run(layout, pod, text)
    log_times.note(str(folder), 1000.2, 0)
    run(layout, pod, b"short", restart=1)
    before = job_logs.runs(layout, JOB)
    assert [(each["restart"], each["start"], each["bytes"], each["kept"]) for each in before] == [
        (0, 0, len(text), False),
        (1, 0, 5, False),
    ]
    logs.keep("u1")
    after = job_logs.runs(layout, JOB)
    start = after[0]["start"]
    assert len(text) - 100 <= start < len(text) - 90
    assert text_of(layout, "u1.torch.0") == text[start:]
    assert text_of(layout, "u1.torch.0").startswith(b"line ")
    assert after[0] == {**before[0], "start": start, "bytes": len(text) - start, "kept": True}
    assert after[1] == {**before[1], "kept": True}
    assert after[0]["startedAt"] == "1970-01-01T00:16:40.000000Z"
    kept = job_logs.find(layout, JOB, "u1.torch.0")
    assert kept is not None
    assert log_times.LogTimes(kept.folder).of(start) == 1000.2


def test_many_times_of_lines_are_thinned_and_the_last_one_stays(tmp_path: Path) -> None:
    layout, pod = Layout(tmp_path), local_pod("u1")
    layout.pod("u1").mkdir(parents=True)
    logs = KeptLogs(layout)
    logs.register(pod)
    folder = run(layout, pod, b"x\n" * 10_000)
    (folder / "times").write_text("".join(f"{1000 + n:.6f} {2 * n}\n" for n in range(1, 10_001)))
    logs.keep("u1")
    kept = job_logs.find(layout, JOB, "u1.torch.0")
    assert kept is not None
    lines = (kept.folder / "times").read_text().splitlines()
    assert 1024 <= len(lines) <= 2048
    assert lines[-1] == "11000.000000 20000"
    assert 1000 <= log_times.LogTimes(kept.folder).of(0) <= 1010


def test_a_line_longer_than_the_bound_is_kept_in_part(tmp_path: Path) -> None:
    layout, pod = Layout(tmp_path), local_pod("u1")
    layout.pod("u1").mkdir(parents=True)
    logs = KeptLogs(layout, LogBounds(run=100))
    logs.register(pod)
    run(layout, pod, b"x" * 1000)
    logs.keep("u1")
    assert text_of(layout, "u1.torch.0") == b"x" * 100


@pytest.mark.parametrize(("jobs", "bounds"), [(1, LogBounds(job=200 * KIB)), (4, LogBounds(total=200 * KIB))])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_oldest_logs_go_first_when_a_bound_is_reached(
    tmp_path: Path, jobs: int, bounds: LogBounds, restarted: bool
) -> None:
    layout, logs = Layout(tmp_path), KeptLogs(Layout(tmp_path), bounds)
    keys = [JobKey("ns", "train", f"job-{number % jobs}") for number in range(20)]
    for number, key in enumerate(keys):
        pod = local_pod(f"u{number}", key)
        layout.pod(pod.uid).mkdir(parents=True)
        logs = KeptLogs(layout, bounds) if restarted else logs
        logs.register(pod)
        run(layout, pod, b"y" * 16 * KIB)
        logs.keep(pod.uid)
        left = [uid for uid in range(number + 1) if job_logs.find(layout, keys[uid], f"u{uid}.torch.0")]
        assert left == list(range(left[0], number + 1))
        assert sum(path.stat().st_size for path in layout.job_logs.rglob("*")) <= 200 * KIB + 40 * KIB
    assert 4 <= len(left) <= 9


def test_nothing_is_kept_of_a_job_that_was_deleted(tmp_path: Path) -> None:
    layout, pod, logs = Layout(tmp_path), local_pod("u1"), KeptLogs(Layout(tmp_path))
    layout.pod("u1").mkdir(parents=True)
    logs.register(pod)
    run(layout, pod, b"text")
    layout.logs_of_job(JOB).rename(tmp_path / "gone")
    logs.keep("u1")
    assert not layout.logs_of_job(JOB).exists()


@pytest.mark.parametrize("run_id", ["../u1.torch.0", "u1.torch.1", "u1.torch", "u1.torch.x", "..", "u2.torch.0"])
def test_a_run_that_does_not_exist_is_not_found(tmp_path: Path, run_id: str) -> None:
    layout, pod, logs = Layout(tmp_path), local_pod("u1"), KeptLogs(Layout(tmp_path))
    layout.pod("u1").mkdir(parents=True)
    logs.register(pod)
    run(layout, pod, b"text")
    assert job_logs.find(layout, JOB, run_id) is None


# With real pods


@pytest.fixture(scope="module")
def server(bare: Stage) -> Server:
    url = yaml.safe_load(bare.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    tls = ssl.create_default_context(cafile=bare.layout.certificate("ca"))
    found = Server("embedded", url, bare.layout.token.read_text().strip(), bare.kubeconfig, tls)
    servers.install(found, generate.load())
    return found


def torchjob(stage: Stage) -> JobKey:
    name = f"train-{next(_NUMBERS)}"
    made = stage.cluster.create(TORCHJOBS, {**builders.job(), "metadata": {"name": name}}, "default")
    return JobKey("default", name, made["metadata"]["uid"])


def make(stage: Stage, job: JobKey, command: str, **options: Any) -> str:
    return stage.make([{"command": ["sh", "-c", command]}], metadata=metadata(job), **options)


def runs(server: Server, job: JobKey) -> list[dict[str, Any]]:
    code, answer = server.send("GET", job_logs_path(job.namespace, job.uid))
    assert code == 200, answer
    found: list[dict[str, Any]] = answer["runs"]
    return found


def log(server: Server, job: JobKey, run_id: str, query: str = "") -> str:
    code, answer = server.send("GET", f"{job_logs_path(job.namespace, job.uid, run_id)}?{query}")
    assert code == 200, answer
    return answer.decode() if isinstance(answer, bytes) else str(answer)


def test_the_runs_of_a_job_are_listed_and_read_before_and_after_their_pods_go(
    stage: Stage, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = torchjob(stage)
    assert runs(server, job) == []
    pod = make(stage, job, "echo one; echo two; test -e again || { touch again; exit 3; }", policy="OnFailure")
    stage.phase(pod, "Succeeded")
    uid = stage.get(pod)["metadata"]["uid"]
    listed = runs(server, job)
    assert [(each["id"], each["exitCode"], each["kept"]) for each in listed] == [
        (f"{uid}.c0.0", 3, False),
        (f"{uid}.c0.1", 0, False),
    ]
    expected = {"pod": pod, "podUid": uid, "task": "worker", "index": 0, "attempt": 3, "generation": 1}
    assert expected.items() <= listed[0].items()
    stage.delete(pod)
    seen = until(lambda: runs(server, job), lambda found: found[-1]["kept"])
    assert [{**each, "kept": False} for each in seen] == listed
    assert log(server, job, f"{uid}.c0.1") == "one\ntwo\n"
    assert log(server, job, f"{uid}.c0.1", "tailLines=1") == "two\n"
    stamped = log(server, job, f"{uid}.c0.0", "timestamps=true&follow=true").splitlines()
    assert [line.partition(" ")[2] for line in stamped] == ["one", "two"]
    monkeypatch.setattr(http_job_logs, "KEPT_SECONDS", 1.0)
    stage.cluster.delete(TORCHJOBS, job.name, job.namespace)
    assert log(server, job, f"{uid}.c0.1", "follow=true") == "one\ntwo\n"  # a follower reads the end of the log
    until(lambda: not stage.layout.logs_of_job(job).exists())
    assert server.send("GET", job_logs_path(job.namespace, job.uid))[0] == 404


def test_the_log_of_a_pod_is_readable_at_every_moment_of_its_removal(stage: Stage, server: Server) -> None:
    job = torchjob(stage)
    pod = make(stage, job, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done")
    until(lambda: stage.status(pod).get("phase") == "Running" and stage.log(pod) == "up\n")
    run_id = f"{stage.get(pod)['metadata']['uid']}.c0.0"
    stage.delete(pod, grace=30)
    texts = []

    def look() -> bool:
        texts.append(log(server, job, run_id))
        return bool(runs(server, job)[0]["kept"])

    until(look)
    whole = log(server, job, run_id)
    assert whole.endswith("bye\n")
    assert [text for text in texts if not whole.startswith(text) or not text.startswith("up\n")] == []


@pytest.mark.parametrize(
    ("path", "method", "code"),
    [
        (job_logs_path("default", "none"), "GET", 404),
        (job_logs_path("default", "{uid}", "none"), "GET", 404),
        (job_logs_path("default", "{uid}", "..%2F..%2Fx.c0.0"), "GET", 404),
        (job_logs_path("other", "{uid}"), "GET", 404),
        (job_logs_path("default", "{uid}", "a/b"), "GET", 404),
        (job_logs_path("default", "{uid}"), "DELETE", 405),
    ],
)
def test_a_path_without_logs_is_refused(stage: Stage, server: Server, path: str, method: str, code: int) -> None:
    answer = server.send(method, path.replace("{uid}", torchjob(stage).uid))
    assert (answer[0], answer[1]["code"]) == (code, code)


def test_the_logs_of_a_job_need_the_token(stage: Stage, server: Server) -> None:
    job = torchjob(stage)
    assert server.send("GET", job_logs_path(job.namespace, job.uid), Authorization="Bearer wrong")[0] == 401


def test_the_output_folder_of_a_job_outlives_its_pods_and_the_job(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_job_logs, "KEPT_SECONDS", 0.1)
    job = torchjob(stage)
    volumes = [{"name": "torchq-output", "persistentVolumeClaim": {"claimName": "results"}}]
    mounts = [{"name": "torchq-output", "mountPath": "/torchq/output", "subPath": "default/x"}]
    declared = {"env": [{"name": "TORCHQ_OUTPUT", "value": "/torchq/output"}], "volumeMounts": mounts}
    command = {"command": ["sh", "-c", 'echo saved >> "$TORCHQ_OUTPUT/model"']}
    for container, spec in ((command, {}), ({**command, **declared}, {"volumes": volumes})):
        pod = stage.make([container], metadata=metadata(job), **spec)
        stage.phase(pod, "Succeeded")
        stage.delete(pod)
    stage.cluster.delete(TORCHJOBS, job.name, job.namespace)
    until(lambda: not stage.layout.logs_of_job(job).exists())
    assert (stage.layout.output(job) / "model").read_text() == "saved\nsaved\n"


def test_a_claim_of_a_pod_without_a_job_fails_the_pod(stage: Stage) -> None:
    pod = stage.run("true", volumes=[{"name": "torchq-output", "persistentVolumeClaim": {"claimName": "results"}}])
    status = stage.phase(pod, "Failed")
    assert "volume torchq-output exists for pods of TorchJobs only" in status["message"]
