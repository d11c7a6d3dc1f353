"""The submission of a run: whatever fails at any request, no job runs without its code, and no run is half
submitted.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.runs import request, run
from coordinator.runs.errors import PartlyStarted
from coordinator.runs.run import PreparedRun
from crds import labels
from crds.api_resources import CONFIG_MAPS, TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Manifest
from kube.client import KubernetesCluster
from tests.support.coordinator.code_stores import unpacked
from tests.support.coordinator.desk import manifest
from tests.support.waiting import until


class Faulty:
    """A cluster that raises an error at one request, before or after it reaches the server."""

    def __init__(self, cluster: KubernetesCluster, number: int, error: BaseException, *, after: bool = False) -> None:
        self._cluster, self._number, self._error, self._after = cluster, number, error, after
        self.requests: list[str] = []
        self.down = False
        """Whether every later request fails, too, as the requests of a killed client do."""

    def __getattr__(self, name: str) -> Any:
        def send(*arguments: Any, **options: Any) -> Any:
            self.requests.append(name)
            is_hit = len(self.requests) == self._number
            if (is_hit and not self._after) or (self.down and len(self.requests) > self._number):
                raise self._error
            try:
                return getattr(self._cluster, name)(*arguments, **options)
            finally:
                if is_hit:
                    raise self._error

        return send


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "train.py").write_text("print(1)")
    return path


def prepare(cluster: Any, folder: Path, namespace: str, **changes: Any) -> PreparedRun:
    document = {"command": ["python", "train.py"], "folder": str(folder), "namespace": namespace, "image": "torch"}
    parsed = request.parse({**document, "name": "train", **changes})
    return run.prepare(cluster, parsed, embedded=False, python_folder="/venv/bin", code_store="")


def jobs(cluster: KubernetesCluster, namespace: str) -> list[Manifest]:
    return cluster.list(TORCHJOBS, namespace).items


def is_held(job: Manifest) -> bool:
    return bool((job["spec"].get("schedulingPolicy") or {}).get("hold"))


def code_objects(cluster: KubernetesCluster, namespace: str) -> list[Manifest]:
    return cluster.list(CONFIG_MAPS, namespace, label_selector=labels.CODE).items


def check_nothing_half(cluster: KubernetesCluster, namespace: str) -> None:
    """Fail if a job could run without its code, or if code has no owner that exists."""
    uids = {job["metadata"]["uid"] for job in jobs(cluster, namespace)}
    owners = [
        {owner["uid"] for owner in item["metadata"].get("ownerReferences", ())}
        for item in code_objects(cluster, namespace)
    ]
    for job in jobs(cluster, namespace):
        assert is_held(job) or any(job["metadata"]["uid"] in found for found in owners), job
    assert all(found & uids for found in owners)


def test_a_run_has_its_code_and_is_let_go(
    cluster: KubernetesCluster, namespace: str, folder: Path, tmp_path: Path
) -> None:
    prepared = prepare(cluster, folder, namespace)
    assert prepared.code is not None
    assert (prepared.code.files, prepared.code.left_out) == (1, [])
    key = run.start(cluster, prepared)
    [job] = jobs(cluster, namespace)
    assert str(key) == f"{namespace}/train/{job['metadata']['uid']}"
    assert not is_held(job)
    assert (
        job["spec"]["torchTaskSpecs"]["Master"]["template"]
        == (prepared.manifest["spec"]["torchTaskSpecs"]["Master"]["template"])
    )
    assert job["metadata"]["labels"] == {labels.CODE: prepared.code.digest[:16]}
    assert labels.PYTHON_FOLDER not in job["metadata"]["annotations"], "an image has its own Python"
    [item] = code_objects(cluster, namespace)
    assert [owner["uid"] for owner in item["metadata"]["ownerReferences"]] == [key.uid]
    assert prepared.store is not None
    assert prepared.archive is not None
    files = unpacked(
        cluster, namespace, prepared.store.source(prepared.archive), prepared.code.digest, tmp_path / "pod"
    )
    assert files["train.py"] == b"print(1)"


def test_a_run_needs_four_requests_beside_those_for_its_code(
    cluster: KubernetesCluster, namespace: str, folder: Path
) -> None:
    counting = Faulty(cluster, 0, RuntimeError())
    run.start(counting, prepare(counting, folder, namespace))  # type: ignore[arg-type]
    # Four requests for the job: its dry run, who submits it, its creation on hold, and its release. The dry run of a
    # pod is the fifth.
    assert counting.requests == ["create", "create", "create", "create", "get", "create", "patch"]


def test_another_copy_of_the_code_is_in_the_job_before_it_is_let_go(
    cluster: KubernetesCluster, namespace: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.code.config_maps.MOST_OWNERS", 1)
    for number in (1, 2):
        run.start(cluster, prepare(cluster, folder, namespace, name=f"train{number}"))
    volumes = [
        job["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["volumes"][1]["configMap"]["name"]
        for job in jobs(cluster, namespace)
    ]
    assert volumes == sorted(item["metadata"]["name"] for item in code_objects(cluster, namespace)) == [
        volumes[0], volumes[0].removesuffix("-1") + "-2-1"
    ]  # fmt: skip


NUMBERS = range(1, 8)
"""The requests of a run; see `test_a_run_needs_four_requests_beside_those_for_its_code`."""


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_client_that_is_killed_at_a_request_leaves_at_most_a_job_on_hold(
    embedded_cluster: KubernetesCluster, namespace: str, folder: Path, number: int, after: bool
) -> None:
    killed = Faulty(embedded_cluster, number, errors.Unreachable("killed"), after=after)
    killed.down = True
    with pytest.raises((errors.Unreachable, PartlyStarted)):
        run.start(killed, prepare(killed, folder, namespace))  # type: ignore[arg-type]
    check_nothing_half(embedded_cluster, namespace)
    is_last = number == NUMBERS[-1] and after
    assert all(is_held(job) for job in jobs(embedded_cluster, namespace)) is not (is_last)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), errors.Unreachable("lost"), errors.ServerError("500")], ids=repr
)
def test_an_interrupted_run_is_taken_back(
    embedded_cluster: KubernetesCluster, namespace: str, folder: Path, number: int, after: bool, error: BaseException
) -> None:
    faulty = Faulty(embedded_cluster, number, error, after=after)
    with pytest.raises(type(error)):
        run.start(faulty, prepare(faulty, folder, namespace))  # type: ignore[arg-type]
    assert jobs(embedded_cluster, namespace) == []
    until(lambda: code_objects(embedded_cluster, namespace), lambda items: not items)


def test_a_job_that_cannot_be_taken_back_is_named(
    embedded_cluster: KubernetesCluster, namespace: str, folder: Path
) -> None:
    killed = Faulty(embedded_cluster, 5, errors.Unreachable("no answer"))
    killed.down = True
    with pytest.raises(PartlyStarted, match=rf"job {namespace}/train may exist on hold.*torchq job delete"):
        run.start(killed, prepare(killed, folder, namespace))  # type: ignore[arg-type]


def test_an_account_that_may_not_keep_code_creates_no_job(
    embedded_cluster: KubernetesCluster, namespace: str, folder: Path
) -> None:
    faulty = Faulty(embedded_cluster, 5, errors.Forbidden("configmaps is forbidden: deploy/rbac/user.yaml grants it"))
    with pytest.raises(errors.Forbidden, match=r"user\.yaml"):
        run.start(faulty, prepare(faulty, folder, namespace))  # type: ignore[arg-type]
    assert jobs(embedded_cluster, namespace) == []


# Names that are taken.


def taken(cluster: KubernetesCluster, namespace: str) -> str:
    return str(cluster.create(TORCHJOBS, manifest("train"), namespace)["metadata"]["uid"])


def test_a_name_that_is_taken_is_refused_with_what_helps(
    cluster: KubernetesCluster, namespace: str, folder: Path
) -> None:
    uid = taken(cluster, namespace)
    with pytest.raises(errors.AlreadyExists, match=f"job {namespace}/train already exists$"):
        run.start(cluster, prepare(cluster, folder, namespace))
    assert [job["metadata"]["uid"] for job in jobs(cluster, namespace)] == [uid]
    assert code_objects(cluster, namespace) == []


def test_replace_deletes_the_job_that_has_the_name(cluster: KubernetesCluster, namespace: str, folder: Path) -> None:
    uid = taken(cluster, namespace)
    key = run.start(cluster, prepare(cluster, folder, namespace, if_exists="replace"))
    [job] = jobs(cluster, namespace)
    assert job["metadata"]["uid"] == key.uid != uid
    assert labels.CODE in job["metadata"]["labels"]


def test_replace_waits_until_the_name_is_free(
    embedded_cluster: KubernetesCluster, namespace: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = manifest("train")
    body["metadata"]["finalizers"] = ["example.org/wait"]
    embedded_cluster.create(TORCHJOBS, body, namespace)
    released: list[float] = []

    def pause(seconds: float) -> None:
        if not released:
            embedded_cluster.patch(TORCHJOBS, "train", {"metadata": {"finalizers": None}}, namespace)
        released.append(seconds)

    monkeypatch.setattr("time.sleep", pause)
    key = run.start(embedded_cluster, prepare(embedded_cluster, folder, namespace, if_exists="replace"))
    assert released
    assert [job["metadata"]["uid"] for job in jobs(embedded_cluster, namespace)] == [key.uid]


def test_replace_deletes_nothing_for_a_job_that_is_not_valid(
    cluster: KubernetesCluster, namespace: str, folder: Path
) -> None:
    uid = taken(cluster, namespace)
    prepared = prepare(cluster, folder, namespace, if_exists="replace", queue="No Queue")
    with pytest.raises(errors.Invalid, match=r"run: .*"):
        run.start(cluster, prepared)
    assert [job["metadata"]["uid"] for job in jobs(cluster, namespace)] == [uid]


def test_attach_returns_the_job_that_has_the_name(cluster: KubernetesCluster, namespace: str, folder: Path) -> None:
    prepared = prepare(cluster, folder, namespace, if_exists="attach")
    key = run.start(cluster, prepared)
    assert run.start(cluster, prepared) == key
    assert isinstance(key, JobKey)


def test_a_job_whose_creation_was_answered_twice_is_the_own_one(
    embedded_cluster: KubernetesCluster, namespace: str, folder: Path
) -> None:
    """The client repeats a create request whose answer was lost."""

    class Repeating:
        def __getattr__(self, name: str) -> Any:
            return getattr(embedded_cluster, name)

        def create(self, resource: Any, body: Manifest, *arguments: Any, **options: Any) -> Manifest:
            made = embedded_cluster.create(resource, body, *arguments, **options)
            if resource == TORCHJOBS and not options.get("dry_run"):
                raise errors.AlreadyExists("the name is taken")
            return made

    key = run.start(Repeating(), prepare(embedded_cluster, folder, namespace))  # type: ignore[arg-type]
    [job] = jobs(embedded_cluster, namespace)
    assert job["metadata"]["uid"] == key.uid
    assert not is_held(job)


# Another client with the same name.


class Rival:
    """A cluster in which another client acts once, directly before a request of one kind."""

    def __init__(self, cluster: KubernetesCluster, verb: str, act: Callable[[], object]) -> None:
        self._cluster, self._verb, self._act = cluster, verb, act

    def __getattr__(self, name: str) -> Any:
        def send(*arguments: Any, **options: Any) -> Any:
            if name == self._verb and arguments[0] == TORCHJOBS and not options.get("dry_run"):
                self._verb = ""
                self._act()
            return getattr(self._cluster, name)(*arguments, **options)

        return send


def test_a_job_that_was_deleted_is_not_taken_for_another_of_its_name(
    cluster: KubernetesCluster, namespace: str, folder: Path
) -> None:
    def replace() -> None:
        cluster.delete(TORCHJOBS, "train", namespace)
        cluster.create(TORCHJOBS, manifest("train", schedulingPolicy={"hold": True}), namespace)

    rival: Any = Rival(cluster, "patch", replace)
    with pytest.raises(errors.Conflict, match=f"job {namespace}/train was deleted by somebody else"):
        run.start(rival, prepare(rival, folder, namespace))
    [other] = jobs(cluster, namespace)
    assert is_held(other), "the new job has no code yet"
    assert labels.CODE not in other["metadata"].get("labels", {})


@pytest.mark.parametrize(
    ("if_exists", "message"),
    [("fail", "already exists$"), ("replace", "exists still or again: .*: run again")],
)
def test_a_name_that_is_taken_meanwhile_is_refused_with_what_helps(
    cluster: KubernetesCluster,
    namespace: str,
    folder: Path,
    if_exists: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coordinator.runs.launch.REPLACE_PAUSE_SECONDS", 0.0)
    rival: Any = Rival(cluster, "create", lambda: taken(cluster, namespace))
    with pytest.raises(errors.AlreadyExists, match=f"job {namespace}/train {message}"):
        run.start(rival, prepare(rival, folder, namespace, if_exists=if_exists))
    assert len(jobs(cluster, namespace)) == 1


def test_attach_returns_the_job_that_another_client_has_submitted_meanwhile(
    cluster: KubernetesCluster, namespace: str, folder: Path
) -> None:
    uids: list[str] = []
    rival: Any = Rival(cluster, "create", lambda: uids.append(taken(cluster, namespace)))
    key = run.start(rival, prepare(rival, folder, namespace, if_exists="attach"))
    assert [key.uid] == uids
