"""`torchq submit` refuses jobs that can never run, unless --anyway is given, and `torchq job why` explains them."""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from coordinator.cli import api_client
from coordinator.http.bounded_server import ServerLimits
from coordinator.http.queue_api import QueueApi
from coordinator.leader.coordinator import Coordinator
from coordinator.rbac.permissions import LEASE
from coordinator.runs import feasibility_check as outlook
from coordinator.settings import Settings
from crds import labels
from crds.api_resources import LEASES, NODES, PODS, TORCHJOBS
from crds.torchjob import torchjob
from kube import errors
from kube.client import KubernetesCluster
from queues.values import QueueSpec
from tests.coordinator.cli.test_api_client import Store, answering
from tests.doubles.memory_work import MemoryWork
from tests.support.coordinator import asking
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import manifest
from tests.support.waiting import SECONDS, until

GPU = "nvidia.com/gpu"


def body(name: str, queue: str, **changes: Any) -> dict[str, Any]:
    """Return a job of one pod that an embedded node can run. The pod requests `gpus`; `container` and `pod` are added
    to its specs."""
    gpus, container, pod = (changes.pop(each, None) for each in ("gpus", "container", "pod"))
    one = {"name": "torch", "image": "torch:1", "command": ["python"], "resources": {"limits": {GPU: gpus or 0}}}
    tasks = {"Master": {"template": {"spec": {"containers": [one | (container or {})], **(pod or {})}}}}
    return manifest(name, queue, tasks, **changes)


@contextmanager
def node(cluster: KubernetesCluster, version: str, **allocatable: str) -> Iterator[None]:
    """Create the only node, which is ready, for the duration of the block."""
    status = {
        "allocatable": {"cpu": "8", "pods": "9", **allocatable},
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": version},
    }
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"}, "status": status})
    try:
        yield
    finally:
        cluster.delete(NODES, "one")


class Place:
    """A cluster with a coordinator that answers, and a folder for files to submit."""

    def __init__(self, torchq: Torchq, namespace: str, folder: Path, store: Store, desk: Coordinator) -> None:
        self.torchq, self.namespace, self.folder, self.store, self.desk = torchq, namespace, folder, store, desk

    def run(self, *arguments: str, code: int = 0) -> Any:
        return self.torchq(*arguments, code=code, TORCHQ_LEASE_NAMESPACE=self.namespace)

    def submit(self, *jobs: dict[str, Any], options: tuple[str, ...] = (), code: int = 0) -> Any:
        file = self.folder / "jobs.yaml"
        file.write_text(yaml.safe_dump_all(map(copy.deepcopy, jobs)))
        return self.run("submit", *options, str(file), code=code)

    def seen(self, count: int) -> None:
        """Wait until the coordinator has this number of TenantQueues."""
        until(lambda: len(self.desk.watches.queues.values()) == count)


@pytest.fixture
def store() -> Store:
    store = Store(lambda *_: None)
    store.rebuild(1, [], [])
    return store


@pytest.fixture(params=[labels.EMBEDDED])
def place(
    request: pytest.FixtureRequest,
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    tmp_path: Path,
    store: Store,
) -> Iterator[Place]:
    """Yield a place with queue a (4 GPUs), queue theirs, and a node of 8 GPUs; by default the node is embedded."""
    work = MemoryWork(lambda: 0.0, store.epoch, lambda _: None)
    desk = Coordinator(embedded_cluster, store, work, Settings(lease_namespace=namespace, pool="nodes"))
    with node(embedded_cluster, request.param, **{GPU: "8"}), answering(desk, store):
        desk.leadership.step()
        for informer in desk.watches.informers:
            informer.start()
        assert all(informer.wait_synced(SECONDS) for informer in desk.watches.informers)
        found = Place(torchq, namespace, tmp_path, store, desk)
        found.run("queue", "create", "a", "--quota", f"{GPU}=4")
        found.run("queue", "create", "theirs", "--namespace", "somebody-else")
        found.run("queue", "create", "wide")
        found.seen(3)
        yield found
        for informer in desk.watches.informers:
            informer.stop()


on_kubernetes = pytest.mark.parametrize("place", ["v1.36.2"], indirect=True)

NEVER = [
    (body("no", "a", gpus=5), "spec.torchTaskSpecs: the job asks for 5 of nvidia.com/gpu, queue a can give 4 at most"),
    (body("no", "nobody"), "spec.schedulingPolicy.queue: there is no TenantQueue nobody: name another queue"),
    (body("no", "theirs"), "spec.schedulingPolicy.queue: queue theirs is not for namespace"),
    (
        body("no", "a", schedulingPolicy={"priorityClassName": "gold"}),
        "spec.schedulingPolicy.priorityClassName: there is no PriorityClass gold",
    ),
]
NOT_HERE = [
    (body("no", "wide", gpus=9), "Master.template.spec.containers: a pod asks for 9 of nvidia.com/gpu"),
    (body("no", "wide", container={"command": []}), "Master.template.spec.containers[0].command: is required"),
    (
        body("no", "wide", pod={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}),
        "Master.template.spec.volumes[0].persistentVolumeClaim: only emptyDir",
    ),
    (
        body(
            "no",
            "wide",
            container={"volumeMounts": [{"name": "d", "mountPath": "/d"}]},
            pod={"volumes": [{"name": "d", "emptyDir": {}}]},
        ),
        "Master.template.spec.containers[0].volumeMounts[0].mountPath: '/d' cannot be mounted",
    ),
    (body("no", "wide", pod={"nodeName": "local"}), "Master.template.spec.nodeName: is not supported"),
    (body("no", "wide", pod={"hostPID": True}), "Master.template.spec.hostPID: is not supported"),
    (
        body("no", "wide", pod={"priorityClassName": "system-node-critical"}),
        "Master.template.spec.priorityClassName: 'system-node-critical' is for parts of a cluster",
    ),
    (body("no", "wide", pod={"nodeSelector": {"gpu": "a100"}}), "does not have the label gpu=a100"),
]


def warnings(said: Any) -> str:
    """Return what was printed to stderr, except the lines about submitted jobs."""
    return "".join(line for line in said.stderr.splitlines(keepends=True) if " submitted on " not in line)


def jobs(cluster: KubernetesCluster, namespace: str) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.list(TORCHJOBS, namespace).items]


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
@pytest.mark.parametrize(("job", "words"), [*NEVER, *NOT_HERE])
def test_a_job_that_can_never_run_is_rejected_and_no_job_is_created(
    place: Place, embedded_cluster: KubernetesCluster, job: dict[str, Any], words: str, options: tuple[str, ...]
) -> None:
    said = place.submit(body("good", "a", gpus=4), job, options=options, code=1)
    assert said.stdout == ""
    assert 'document 2: TorchJob "no" can never run:\n' in said.stderr
    assert words in said.stderr
    assert '"good"' not in said.stderr
    assert "nothing was submitted; --anyway" in said.stderr
    assert jobs(embedded_cluster, place.namespace) == []


@pytest.mark.parametrize(("job", "words"), [NEVER[0], NEVER[1], *NOT_HERE[:2]])
def test_anyway_submits_a_job_that_can_never_run_with_a_warning(
    place: Place, embedded_cluster: KubernetesCluster, job: dict[str, Any], words: str
) -> None:
    said = place.submit(body("good", "a"), job, options=("--anyway",))
    assert said.stderr.startswith('warning: TorchJob "no": ')
    assert words in said.stderr
    assert len(said.stdout.split()) == 2
    assert jobs(embedded_cluster, place.namespace) == ["good", "no"]


def test_a_job_that_can_run_is_submitted_without_a_warning(place: Place) -> None:
    said = place.submit(body("one", "a", gpus=4), body("two", "wide", gpus=8, suspend=True))
    assert (len(said.stdout.split()), warnings(said)) == (2, "")


def test_a_policy_of_a_template_that_has_no_effect_is_noted(place: Place) -> None:
    both = body("both", "a")
    one, other = both["spec"]["torchTaskSpecs"]["Master"], copy.deepcopy(both["spec"]["torchTaskSpecs"]["Master"])
    one["restartPolicy"], one["template"]["spec"]["restartPolicy"] = "ExitCode", "OnFailure"
    other["template"]["spec"]["restartPolicy"] = "Never"
    both["spec"]["torchTaskSpecs"]["Evaluator"] = other
    assert warnings(place.submit(both)) == (
        'warning: TorchJob "both": spec.torchTaskSpecs.Master.template.spec.restartPolicy: '
        "OnFailure has no effect: the restartPolicy of task Master is ExitCode\n"
    )


@pytest.mark.parametrize(("options", "state"), [((), "is on hold"), (("--drain",), "is on hold and drains")])
def test_a_job_for_a_queue_that_admits_nothing_is_submitted_and_moved_with_a_word(
    place: Place, options: tuple[str, ...], state: str
) -> None:
    place.run("queue", "pause", "wide", *options)
    until(lambda: not place.desk.watches.queues.get("", "wide").spec.is_open)  # type: ignore[union-attr]
    word = f"spec.schedulingPolicy.queue: queue wide {state}: the job waits until an admin resumes it"
    assert word in warnings(place.submit(body("one", "wide")))
    place.submit(body("two", "a"))
    assert word in place.run("job", "move", "two", "wide").stderr
    place.run("queue", "resume", "wide")
    until(lambda: place.desk.watches.queues.get("", "wide").spec.is_open)  # type: ignore[union-attr]
    assert warnings(place.submit(body("three", "wide"))) == ""


@on_kubernetes
def test_on_kubernetes_a_job_larger_than_all_nodes_yields_a_warning(place: Place) -> None:
    large = body("large", "wide", gpus=8)
    large["spec"]["torchTaskSpecs"]["Worker"] = {**large["spec"]["torchTaskSpecs"]["Master"], "numTasks": 2}
    said = place.submit(large, large | {"metadata": {"name": "too"}})
    assert len(said.stdout.split()) == 2
    assert warnings(said) == (
        'warning: TorchJob "large" and 1 more: spec.torchTaskSpecs: the job asks for 24 of nvidia.com/gpu, all nodes '
        "together have 8: it waits until there are nodes that have it\n"
    )


@on_kubernetes
def test_on_kubernetes_a_pod_larger_than_the_largest_node_is_rejected_unless_the_user_insists(place: Place) -> None:
    words = (
        "spec.torchTaskSpecs.Master: a pod asks for 9 nvidia.com/gpu, and no node has more than 8 (--anyway: nodes may "
        "be added)\n"
    )
    large = body("large", "wide", gpus=9)
    assert words in place.submit(large, code=1).stderr
    said = place.submit(large, options=("--anyway",))
    assert warnings(said) == f'warning: TorchJob "large": {words}'
    assert len(said.stdout.split()) == 1


@on_kubernetes
@pytest.mark.parametrize(("job", "words"), NEVER)
def test_on_kubernetes_a_job_that_its_queue_can_never_hold_is_rejected(
    place: Place, job: dict[str, Any], words: str
) -> None:
    assert words in place.submit(job, code=1).stderr


@on_kubernetes
def test_on_kubernetes_the_rules_of_the_embedded_node_do_not_apply(place: Place) -> None:
    said = place.submit(*({**job, "metadata": {"name": f"j{at}"}} for at, (job, _) in enumerate(NOT_HERE[1:])))
    assert warnings(said) == (
        'warning: TorchJob "j3": spec.torchTaskSpecs.Master: no node has the name in its nodeName: it waits until '
        "there is one\n"
        'warning: TorchJob "j6": spec.torchTaskSpecs.Master: no node has the label gpu=a100 that its nodeSelector asks '
        "for: it waits until there is one\n"
    )


@pytest.mark.parametrize(("labels", "starts"), [(2, 1), (63, 0)])
def test_a_question_has_the_pods_that_start_together_if_it_fits_into_a_url(labels: int, starts: int) -> None:
    selector = {f"label-{number}": "x" * 60 for number in range(labels)}
    job = body("one", "wide", pod={"nodeSelector": selector})
    job["metadata"] |= {"namespace": "team", "uid": "u"}
    question = outlook.question(torchjob.parse(job))
    assert len(question.starts) == starts
    assert len(quote(question.model_dump_json(), safe="")) < ServerLimits().head_bytes / 2


def test_a_malformed_pod_is_rejected_with_or_without_anyway(place: Place) -> None:
    wrong = body("no", "wide", container={"name": "Not A Name", "command": []})
    for options in ((), ("--anyway",)):
        said = place.submit(wrong, options=options, code=1)
        assert "containers[0].name" in said.stderr
        assert "can never run" not in said.stderr


def test_a_queue_that_was_just_created_is_asked_for_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator has not seen the queue when the command asks for the first time."""

    def create(_: float) -> None:
        place.run("queue", "create", "new")
        place.seen(4)

    monkeypatch.setattr(outlook, "FeasibilityCheck", partial(outlook.FeasibilityCheck, pause=create))
    assert warnings(place.submit(body("one", "new"))) == ""


def test_an_unreachable_coordinator_refuses_no_job(place: Place, embedded_cluster: KubernetesCluster) -> None:
    nowhere = {"metadata": {"annotations": {api_client.API_ANNOTATION: "http://127.0.0.1:9"}}}
    embedded_cluster.patch(LEASES, LEASE, nowhere, place.namespace)
    said = place.submit(body("one", "nobody"))
    assert said.stderr.startswith("note: it was not checked whether the jobs can ever run: the coordinator at")
    assert len(said.stdout.split()) == 1
    embedded_cluster.delete(LEASES, LEASE, place.namespace)
    assert warnings(place.submit(body("two", "nobody"))) == ""


def test_an_account_that_may_not_read_the_lease_may_submit(
    place: Place, embedded_cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: KubernetesCluster, resource: Any, *rest: Any, **options: Any) -> Any:
        if resource is LEASES:
            raise errors.Forbidden("you may not get leases")
        return get(self, resource, *rest, **options)

    get = KubernetesCluster.get
    monkeypatch.setattr(KubernetesCluster, "get", refuse)
    said = place.submit(body("one", "nobody"))
    assert warnings(said) == "note: it was not checked whether the jobs can ever run: you may not get leases\n"
    monkeypatch.undo()
    assert jobs(embedded_cluster, place.namespace) == ["one"]


def test_a_coordinator_of_an_earlier_version_refuses_no_job(
    place: Place, embedded_cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version does not have the path. The earlier version answers as this version answers to an unknown
    path.
    """
    answer = QueueApi.answer
    monkeypatch.setattr(
        QueueApi, "answer", lambda self, path, reader: answer(self, path.replace("/v1/check", "/v1/unknown"), reader)
    )
    said = place.submit(body("one", "nobody"))
    assert warnings(said) == f"note: it was not checked whether the jobs can ever run: {outlook.EARLIER}\n"
    assert jobs(embedded_cluster, place.namespace) == ["one"]


def test_a_coordinator_that_is_not_synced_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(place.desk.watches), "synced", property(lambda _: False))
    said = place.submit(body("one", "nobody"))
    assert "has not read the cluster yet" in said.stderr


@pytest.mark.parametrize(
    "question", ["", "job=", "job=5", "job={}", 'job={"namespace":"a","queue":"b","charge":{"x":"y"}}']
)
def test_check_rejects_a_malformed_question(place: Place, question: str) -> None:
    headers = asking.headers(place.desk.cluster)
    with pytest.raises(Exception, match="job"):
        api_client.via_url(place.desk.leadership.address, headers=lambda _: headers)(f"/v1/check?{question}")


def test_the_embedded_node_rejects_only_dry_runs_with_the_annotation(
    place: Place, embedded_cluster: KubernetesCluster
) -> None:
    spec = {"containers": [{"name": "torch", "image": "torch:1"}]}

    def make(name: str, *, dry_run: bool, **annotations: str) -> None:
        metadata = {"name": name, "annotations": annotations}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        embedded_cluster.create(PODS, pod, place.namespace, dry_run=dry_run)

    make("plain", dry_run=True)
    make("made", dry_run=False, **{labels.VET: "true"})
    with pytest.raises(errors.Invalid) as refusal:
        make("asks", dry_run=True, **{labels.VET: ""})
    assert [each.field for each in refusal.value.causes] == ["spec.containers[0].command"]


def why(place: Place, name: str) -> Any:
    return json.loads(place.run("job", "why", name, "-o", "json").stdout)


def test_why_shows_whether_a_suspended_job_would_fit(place: Place, embedded_cluster: KubernetesCluster) -> None:
    room = {"cpu": 8000, "pods": 9, GPU: 8, "*": 0}
    place.store.configure([QueueSpec(name="a", quota={GPU: 4}), QueueSpec(name="wide")], room)
    made = [body("fits", "a", gpus=4), body("never", "a", gpus=5)]
    for each in made:
        embedded_cluster.create(TORCHJOBS, {**each, "spec": {**each["spec"], "suspend": True}}, place.namespace)
    until(lambda: len(place.desk.watches.jobs.values()) == 2)
    fits = why(place, "fits")
    assert (fits["code"], fits["ifResumed"]["fits"], fits["ifResumed"]["code"]) == ("Suspended", True, "Next")
    assert (
        "if it were resumed now, it would fit: the job goes with queue a's next turn"
        in place.run("job", "why", "fits").stdout
    )
    said = place.run("job", "why", "never").stdout
    assert "if it were resumed now, it could never run: ExceedsQuota: the job asks for 5 of nvidia.com/gpu" in said
    place.store.configure([QueueSpec(name="a", quota={GPU: 4}, open=False)], room)
    place.run("queue", "pause", "a")
    until(lambda: why(place, "fits")["ifResumed"]["code"] == "QueueHeld")
    assert why(place, "never")["ifResumed"]["code"] == "ExceedsQuota"


def test_why_of_a_suspended_job_says_that_no_coordinator_answers(
    place: Place, embedded_cluster: KubernetesCluster
) -> None:
    embedded_cluster.create(TORCHJOBS, body("one", "a", suspend=True), place.namespace)
    embedded_cluster.delete(LEASES, LEASE, place.namespace)
    said = place.run("job", "why", "one").stdout
    assert "spec.suspend is true; to continue: torchq job resume" in said
    assert "whether it would fit now is not known: no coordinator answers" in said
