"""Logs of jobs on an embedded node with real processes, compared with the files that the containers write."""

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.follow import logs
from coordinator.follow.job_feed import JobFeed
from coordinator.follow.log_lines import LogLine, LogSelection
from coordinator.follow.present_logs import NoOutput, NoSuchPod
from crds import generate, labels
from crds.api_resources import CRDS, PODS, TORCHJOBS, Resource
from crds.keys import JobKey
from embedded.apiserver import api_server as apiserver
from embedded.layout import Layout
from embedded.node.node import running_node
from kube import client, errors
from kube.api import ALL_OUTPUT, LogOptions
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from kube.streams import Stream
from tests.support.coordinator.desk import manifest, owner, task
from tests.support.embedded.stage import SETTINGS
from tests.support.waiting import SECONDS, until

pytestmark = pytest.mark.servers

NAMESPACE = "default"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """Yield a client of an embedded cluster with a node in this process."""
    layout = Layout(tmp_path_factory.mktemp("cluster"))
    with apiserver.running(layout) as server:
        connected = client.connect(ConnectionSettings(kubeconfig=str(server.kubeconfig)))
        with running_node(connected, layout, SETTINGS):
            for kind in generate.load():
                connected.create(CRDS, kind)
            until(lambda: connected.serves(TORCHJOBS))
            yield connected
        connected.close()


@pytest.fixture
def feed(cluster: KubernetesCluster) -> Iterator[JobFeed]:
    with JobFeed(cluster, NAMESPACE) as opened:
        yield opened


WHEN = "2026-01-01T00:00:00Z"
BURST = """
import os, sys, time
name, file = sys.argv[1], open(sys.argv[2], "ab", buffering=0)
count = os.path.getsize(sys.argv[2])
for number in range(300):
    line = b"%s at %d: %d\\n" % (name.encode(), count, number if number % 3 else 0)
    file.write(line)
    os.write(1, line)
    if number % 20 == 0:
        time.sleep(0.01)
"""


class Scene:
    """A job and its pods. The test creates the pods in place of a coordinator and a worker."""

    def __init__(self, cluster: KubernetesCluster, name: str, folder: Path, workers: int = 1) -> None:
        tasks = {"Master": task(), "Worker": task(workers) | {"dependsOn": []}}
        self.key = JobKey.of(cluster.create(TORCHJOBS, manifest(name, tasks=tasks), NAMESPACE))
        self.cluster = cluster
        self.folder = folder

    def pod(
        self, member: str, command: list[str], policy: str = "OnFailure", attempt: int = 1, secret: str = ""
    ) -> None:
        """Make the pod of a member, such as master-0."""
        kind, _, index = member.partition("-")
        marks = {labels.JOB_UID: self.key.uid, labels.TASK_TYPE: kind, labels.TASK_INDEX: index}
        marks |= {labels.JOB_NAME: self.key.name, labels.ATTEMPT: str(attempt)}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{self.key.name}-{member}",
                "labels": marks,
                "ownerReferences": [owner(self.key)],
            },
            "spec": {
                "restartPolicy": policy,
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "torch", "image": "any", "command": command}],
            },
        }
        if secret:
            source = {"secretKeyRef": {"name": secret, "key": "key"}}
            body["spec"]["containers"][0]["env"] = [{"name": "A", "valueFrom": source}]
        self.cluster.create(PODS, body, NAMESPACE)

    def python(self, code: str, *arguments: str) -> list[str]:
        return ["python3", "-c", code, *arguments]

    def file(self, member: str) -> Path:
        return self.folder / f"{self.key.name}-{member}"

    def written(self, member: str) -> list[str]:
        """Return the lines that the containers of a member have written."""
        return self.file(member).read_text().splitlines()

    def wait_pod(self, member: str, true: Any) -> None:
        until(lambda: true(self.cluster.get(PODS, f"{self.key.name}-{member}", NAMESPACE).get("status") or {}))

    def replace(self, member: str) -> None:
        """Delete the pod of a member and wait until it is gone."""
        name = f"{self.key.name}-{member}"
        self.cluster.delete(PODS, name, NAMESPACE)

        def gone() -> bool:
            try:
                self.cluster.get(PODS, name, NAMESPACE)
            except errors.NotFound:
                return True
            return False

        until(gone)

    def phase(self, phase: str, reason: str = "", message: str = "so", **status: Any) -> None:
        condition = {"type": phase, "status": "True", "reason": reason, "message": message, "lastTransitionTime": WHEN}
        body = {"status": {"phase": phase, "conditions": [condition], **status}}
        self.cluster.patch(TORCHJOBS, self.key.name, body, NAMESPACE, subresource="status")

    def admit(self, phase: str = "Running") -> None:
        admission = {"queue": "a", "attempt": 1, "epoch": 1, "pick": 1, "charge": {"jobs": 1}, "port": 0}
        self.phase(phase, admission={**admission, "admittedAt": WHEN})


def states(status: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the first container."""
    found: dict[str, Any] = (status.get("containerStatuses") or [{}])[0].get("state") or {}
    return found


def restarts(status: dict[str, Any]) -> int:
    return sum(each["restartCount"] for each in status.get("containerStatuses") or ())


class Follower:
    """A thread that follows a job."""

    def __init__(self, cluster: Any, feed: JobFeed, key: JobKey, **selection: Any) -> None:
        self.lines: list[LogLine] = []
        self.error: Exception | None = None
        self.stop = threading.Event()
        self._follow = logs.follow(cluster, feed, key, LogSelection(follow=True, **selection), self.stop)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for line in self._follow:
                self.lines.append(line)
        except Exception as error:
            self.error = error

    def end(self) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def of(self, pod: str) -> list[str]:
        return [line.text for line in self.lines if line.pod == pod]


class Cutting(KubernetesCluster):
    """A client of a server whose log answers may break off again and again, and which may not list runs."""

    def __init__(self, cluster: KubernetesCluster, *, cuts: bool, lists: bool) -> None:
        super().__init__(cluster._transport, cluster._settings)
        self.cuts = 0
        self._cuts_off = cuts
        self._lists = lists

    def job_runs(self, namespace: str, uid: str) -> list[Any]:
        if not self._lists:
            raise errors.Forbidden("no such path")
        return super().job_runs(namespace, uid)

    def logs(self, *arguments: Any, follow: bool = False, options: LogOptions = ALL_OUTPUT) -> Stream[bytes]:
        return self._cut(super().logs(*arguments, follow=follow, options=options))

    def job_log(self, *arguments: Any, follow: bool = False, options: LogOptions = ALL_OUTPUT) -> Stream[bytes]:
        return self._cut(super().job_log(*arguments, follow=follow, options=options))

    def _cut(self, stream: Stream[bytes]) -> Stream[bytes]:
        values = stream._values

        def some() -> Iterator[bytes]:
            for number, piece in enumerate(values):
                if self._cuts_off and number == 1 + self.cuts % 4:
                    self.cuts += 1
                    yield piece[: len(piece) // 2]
                    raise errors.Unreachable("the connection is cut")
                yield piece

        stream._values = some()
        return stream


class Losing(KubernetesCluster):
    """A client whose first watch of pods ends at once, and whose answers begin with an error of the kubelet."""

    ERROR = b"unable to retrieve container logs for containerd://3f9c1a70\n"

    def __init__(self, cluster: KubernetesCluster) -> None:
        super().__init__(cluster._transport, cluster._settings)
        self.watches = 0

    def watch(self, resource: Resource, *arguments: Any, **options: Any) -> Any:
        self.watches += resource == PODS
        if resource == PODS and self.watches == 1:
            raise errors.Unreachable("Connection refused")
        return super().watch(resource, *arguments, **options)

    def job_runs(self, *_: str) -> list[Any]:
        raise errors.Forbidden("no such path")

    def logs(self, *arguments: Any, **options: Any) -> Stream[bytes]:
        stream = super().logs(*arguments, **options)
        stream._values = itertools.chain([self.ERROR], stream._values)
        return stream


def test_errors_of_servers_are_no_output_and_a_lost_connection_is_told_once(
    cluster: KubernetesCluster, feed: JobFeed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(cluster, "losing", tmp_path)
    scene.admit()
    client = Losing(cluster)
    follower = Follower(client, feed, scene.key)
    until(lambda: client.watches > 1)
    scene.pod("master-0", scene.python("print('here')"), policy="Never")
    until(lambda: follower.of("master-0") == ["here"])
    scene.phase("Succeeded", "Succeeded")
    follower.end()
    assert follower.of("master-0") == ["here"]
    lost, again, kubelet = follower.of("")
    assert lost.startswith("the API server does not answer;")
    assert (again, kubelet) == ("the API server answers again", f"master-0: {client.ERROR.decode().strip()}")
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []
    present = logs.follow(client, feed, scene.key, LogSelection(), threading.Event())
    assert [(line.pod, line.text) for line in present] == [("", kubelet), ("master-0", "here")]


@pytest.mark.parametrize(
    ("lists", "cut"), [(True, True), (False, False), (False, True)], ids=["listed-cut", "plain", "plain-cut"]
)
def test_a_job_that_fails_twice_and_is_then_replaced_is_followed_to_its_end_and_every_line_comes_once(
    cluster: KubernetesCluster, feed: JobFeed, tmp_path: Path, lists: bool, cut: bool
) -> None:
    scene = Scene(cluster, f"twice-{lists}-{cut}".lower(), tmp_path)
    client = Cutting(cluster, cuts=cut, lists=lists)
    follower = Follower(client, feed, scene.key)
    until(lambda: follower.lines)
    assert follower.lines[0] == LogLine("", f"waiting: in queue {NAMESPACE}")
    file = str(scene.file("master-0"))
    waits = "while not os.path.exists(sys.argv[3] + str(os.path.getsize(sys.argv[2]))): time.sleep(0.01)"
    fails = f"{BURST.replace('for number', waits + chr(10) + 'for number', 1)}sys.exit(1)"
    scene.pod("master-0", scene.python(fails, "first", file, file))
    scene.admit()
    for run in range(2):
        # A server that keeps only two runs of a container has lost the output of an earlier run that a broken
        # connection did not deliver in time.
        until(lambda: lists or not cut or len(follower.of("master-0")) == 300 * run)  # noqa: B023 - it is called here alone
        until(scene.file("master-0").exists)
        Path(f"{file}{scene.file('master-0').stat().st_size}").touch()
        scene.wait_pod("master-0", lambda status: "running" in states(status) and restarts(status) == run + 1)  # noqa: B023
    until(lambda: lists or not cut or len(follower.of("master-0")) == 600)
    scene.replace("master-0")
    scene.pod("master-0", scene.python(BURST, "second", file), attempt=2)
    scene.wait_pod("master-0", lambda status: status.get("phase") == "Succeeded")
    scene.phase("Succeeded")
    follower.end()
    assert len(scene.written("master-0")) == 900
    assert follower.of("master-0") == scene.written("master-0")
    assert not cut or client.cuts >= 2


def test_all_pods_of_a_job_are_followed_each_line_with_its_pod(
    cluster: KubernetesCluster, feed: JobFeed, tmp_path: Path
) -> None:
    scene = Scene(cluster, "many", tmp_path, workers=3)
    members = ["master-0", "worker-0", "worker-1", "worker-2"]
    for member in members:
        scene.pod(member, scene.python(BURST, member, str(scene.file(member))))
    scene.admit()
    follower = Follower(cluster, feed, scene.key, all=True)
    for member in members:
        scene.wait_pod(member, lambda status: status.get("phase") == "Succeeded")
    scene.phase("Succeeded")
    follower.end()
    for member in members:
        assert follower.of(member) == scene.written(member)
    now = list(logs.follow(cluster, feed, scene.key, LogSelection(all=True, tail=2), threading.Event()))
    assert [line.pod for line in now] == [member for member in members for _ in range(2)]
    assert [line.text for line in now[2:4]] == scene.written("worker-0")[-2:]


def test_follower_of_a_job_whose_last_ranks_still_run_is_told_for_which_it_waits(
    cluster: KubernetesCluster, feed: JobFeed, tmp_path: Path
) -> None:
    scene = Scene(cluster, "lasts", tmp_path)
    scene.pod("master-0", scene.python(BURST, "only", str(scene.file("master-0"))))
    scene.admit()
    follower = Follower(cluster, feed, scene.key)
    scene.phase("Running", "WaitsForRanks", "the job waits for rank 1")
    until(lambda: LogLine("", "the job waits for rank 1") in follower.lines)
    scene.phase("Running", "WaitsForRanks", "the job waits for rank 1", observedGeneration=2)
    scene.wait_pod("master-0", lambda status: status.get("phase") == "Succeeded")
    scene.phase("Succeeded")
    follower.end()
    assert [line.text for line in follower.lines if not line.pod] == ["the job waits for rank 1"]


def test_long_and_broken_lines_are_cut_and_marked_and_the_rest_follows(
    cluster: KubernetesCluster, feed: JobFeed, tmp_path: Path
) -> None:
    scene = Scene(cluster, "broken", tmp_path)
    code = "import os; [os.write(1, b'x' * 65536) for _ in range(160)]; os.write(1, b'\\n\\0a\\xffb\\nend')"
    scene.pod("master-0", scene.python(code), policy="Never")
    scene.admit()
    follower = Follower(cluster, feed, scene.key)
    scene.wait_pod("master-0", lambda status: status.get("phase") == "Succeeded")
    scene.phase("Succeeded")
    follower.end()
    long, broken, end = follower.of("master-0")
    assert long == "x" * 65536 + f" [torchq: cut, the line has {160 * 65536} bytes]"
    assert (broken, end) == ("\ufffda\ufffdb", "end")


def test_newest_state_of_a_progress_bar_is_followed_and_its_line_is_the_last_one(
    cluster: KubernetesCluster, feed: JobFeed, tmp_path: Path
) -> None:
    scene = Scene(cluster, "bar", tmp_path)
    go = tmp_path / "go"
    code = f"""if True:
        import os, sys, time
        os.write(1, b"\\r 1%\\r 39%")
        while not os.path.exists({str(go)!r}):
            time.sleep(0.05)
        os.write(1, b"\\r100%\\nepoch 0\\n")
    """
    scene.pod("master-0", scene.python(code), policy="Never")
    scene.admit()
    followers = [Follower(cluster, feed, scene.key, states=states) for states in ("newest", "last", "all")]
    terminal, file, raw = followers
    until(lambda: [line.text for line in terminal.lines if not line.is_over] == [" 39%"])
    go.touch()
    scene.wait_pod("master-0", lambda status: status.get("phase") == "Succeeded")
    scene.phase("Succeeded")
    for follower in followers:
        follower.end()
    assert [line.text for line in terminal.lines if line.is_over] == file.of("master-0") == ["100%", "epoch 0"]
    assert raw.of("master-0") == ["", " 1%", " 39%", "100%", "epoch 0"]


def test_a_job_that_can_never_run_says_why_and_ends_the_following(
    cluster: KubernetesCluster, feed: JobFeed, tmp_path: Path
) -> None:
    scene = Scene(cluster, "never", tmp_path)
    follower = Follower(cluster, feed, scene.key)
    until(lambda: follower.lines)
    reason = {"name": "a", "reason": "ExceedsQuota", "message": "it asks for 9 GPUs, and the queue has 4"}
    scene.phase("Queued", "Waiting", queue=reason)
    with pytest.raises(NoOutput, match="can never run: it asks for 9 GPUs"):
        follower.end()


def test_a_job_that_fails_before_it_has_pods_says_why(
    cluster: KubernetesCluster, feed: JobFeed, tmp_path: Path
) -> None:
    scene = Scene(cluster, "invalid", tmp_path)
    with pytest.raises(NoOutput, match="pod invalid-worker-0 has no output yet: the job is Pending, in queue default"):
        list(logs.follow(cluster, feed, scene.key, LogSelection(task="worker"), threading.Event()))
    scene.phase("Failed", "InvalidSpec", "no containers")
    with pytest.raises(NoOutput, match="Failed: no containers"):
        list(logs.follow(cluster, feed, scene.key, LogSelection(follow=True), threading.Event()))
    with pytest.raises(NoSuchPod, match=r"has no ps 0; it has Master 0\.\.0, Worker 0\.\.0"):
        list(logs.follow(cluster, feed, scene.key, LogSelection(task="ps"), threading.Event()))


def test_a_follower_is_told_that_a_job_waits_no_longer_and_why_its_pods_do_not_start(
    cluster: KubernetesCluster, feed: JobFeed, tmp_path: Path
) -> None:
    scene = Scene(cluster, "newest", tmp_path, workers=2)
    scene.phase("Queued", queue={"name": "a", "reason": "QueueHeld", "message": "queue a is on hold"})
    follower = Follower(cluster, feed, scene.key, all=True)
    until(lambda: follower.of("") == ["waiting: queue a is on hold (QueueHeld)"])
    scene.admit("Admitted")
    until(lambda: follower.of("")[1:] == ["admitted: its pods start"])
    for member in ("worker-0", "worker-1"):
        scene.pod(member, ["true"], secret="missing")
    until(lambda: follower.of("")[2:])
    scene.pod("master-0", scene.python("print(1)"))
    until(lambda: follower.of("master-0") == ["1"])
    follower.stop.set()
    follower.end()
    [problem] = follower.of("")[2:]
    assert problem.startswith("worker-"), "a problem that all pods of a task share is told once"
    assert 'does not start: CreateContainerConfigError: secret "missing" not found' in problem


def test_the_following_stops_when_it_is_asked_to_and_leaves_no_thread(
    cluster: KubernetesCluster, feed: JobFeed, tmp_path: Path
) -> None:
    scene = Scene(cluster, "stopped", tmp_path)
    scene.pod("master-0", scene.python("import time; print('here', flush=True); time.sleep(1000)"), policy="Never")
    scene.admit()
    before = set(threading.enumerate())
    follower = Follower(cluster, feed, scene.key)
    until(lambda: follower.of("master-0") == ["here"])
    follower.stop.set()
    follower.end()

    def left() -> list[str]:
        new = set(threading.enumerate()) - before
        return [each.name for each in new if each.name.startswith(("log-", "informer-p"))]

    until(left, lambda names: not names)
    scene.replace("master-0")


def test_all_runs_and_single_ones_are_read_also_of_a_pod_that_is_gone(
    cluster: KubernetesCluster, feed: JobFeed, tmp_path: Path
) -> None:
    scene = Scene(cluster, "again", tmp_path)
    code = "import os, sys; open(sys.argv[1], 'a').write('x'); n = os.path.getsize(sys.argv[1]); print('run', n)"
    scene.pod("master-0", scene.python(f"{code}; sys.exit(n < 2)", str(scene.file("master-0"))))
    scene.admit()
    scene.wait_pod("master-0", lambda status: status.get("phase") == "Succeeded")

    def read(client: KubernetesCluster, **selection: Any) -> list[str]:
        chosen = LogSelection(**selection)
        return [line.text for line in logs.follow(client, feed, scene.key, chosen, threading.Event())]

    note = "master-0: run {}, in pod again-master-0"
    everything = [note.format(1), "run 1", note.format(2), "run 2"]
    for each in (cluster, Cutting(cluster, cuts=False, lists=False)):
        assert read(each) == everything
        assert (read(each, tail=5), read(each, run=1), read(each, previous=True)) == (["run 2"], ["run 1"], ["run 1"])
    scene.replace("master-0")
    assert (read(cluster), read(cluster, run=2)) == (everything, ["run 2"])
    with pytest.raises(NoOutput, match="pod again-master-0 has no run 3"):
        read(cluster, run=3)
    with pytest.raises(NoOutput, match="pod again-master-0 has no output yet"):
        read(Cutting(cluster, cuts=False, lists=False))
    scene.phase("Succeeded", "Succeeded", "all is done", attempt=1)
    gone = "the output of pod again-master-0 is gone with its pods: .* or a person has deleted; the job is Succeeded"
    with pytest.raises(NoOutput, match=gone):
        read(Cutting(cluster, cuts=False, lists=False))
