"""The task Rendezvous: implied for an elastic job, and replaced by a task with the name Rendezvous."""

import copy
from typing import Any

import pytest

from crds.errors import InvalidObject
from crds.torchjob import cached_parser, checks, grant, torchjob
from crds.torchjob.jobspec import TorchJobSpec
from crds.torchjob.status import Admission
from crds.torchjob.tasks import Dependency
from tests.support.crds import served
from tests.support.crds.builders import GPU, job, task, template

POLICY = {"numMinReplicas": 1, "numMaxReplicas": 4}
STORE = Dependency(task_type="Rendezvous", phase="Running")


def elastic(policy: dict[str, Any] | None = POLICY, **tasks: Any) -> dict[str, Any]:
    """Return a job with a policy. Without `tasks`, Worker is the only task of the job."""
    fields = {} if policy is None else {"torchElasticPolicy": policy}
    return job(torchTaskSpecs=tasks or {"Worker": task(numTasks=2)}, **fields)


def after(task_type: str) -> dict[str, str]:
    """Return a dependency on the success of a task."""
    return {"taskType": task_type, "phase": "Succeeded"}


def spec_of(manifest: dict[str, Any]) -> TorchJobSpec:
    return torchjob.parse(manifest).spec


def test_store_has_what_its_pod_needs_of_the_workers() -> None:
    shared = {
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "trainer",
        "tolerations": [{"key": "team", "operator": "Exists"}],
    }
    pod = template(cpu="4", **{GPU: 1})
    pod["spec"] |= {**shared, "nodeSelector": {"gpu": "yes"}, "hostNetwork": True}
    pod["spec"]["containers"].insert(0, {"name": "other", "image": "beside"})
    found = spec_of(elastic(Worker=task(template=pod))).tasks["Rendezvous"]
    (container,) = found.template["spec"].pop("containers")
    assert found.template == {"spec": shared}
    assert (container["name"], container["image"], container["command"][:2]) == ("torch", "train", ["python", "-c"])
    assert container["resources"] == {"requests": {"cpu": "50m", "memory": "320Mi"}}
    assert (found.num_tasks, found.auxiliary, found.critical, found.depends_on) == (1, True, True, ())


@pytest.mark.parametrize(
    "manifest",
    [
        elastic(None),
        elastic({**POLICY, "mode": "InPlaceRestart"}),
        elastic(Master=task()),
        elastic(Worker=task(), rendezvous=task()),
        elastic(Worker=task(), **{f"T{number}": task() for number in range(15)}),
    ],
    ids=["no policy", "InPlaceRestart", "no worker", "another spelling", "no room"],
)
def test_other_job_has_no_store(manifest: dict[str, Any]) -> None:
    spec = spec_of(manifest)
    assert spec.tasks.keys() == manifest["spec"]["torchTaskSpecs"].keys()
    assert (spec.rendezvous, spec.has_implied_rendezvous) == (False, False)


def test_store_is_charged_like_any_pod() -> None:
    plain, found = (torchjob.parse(elastic(policy)).charge for policy in (None, POLICY))
    assert found == {**plain, "pods": plain["pods"] + 1, "cpu": 50, "memory": 320 * 2**20}


def test_workers_wait_for_the_store_beside_what_they_wait_for() -> None:
    implied = spec_of(elastic(Master=task(), Worker=task()))
    assert implied.tasks["Worker"].depends_on == (Dependency(task_type="Master"), STORE)
    declared = spec_of(elastic(Master=task(), Worker=task(dependsOn=[])))
    assert declared.tasks["Worker"].depends_on == declared.tasks["Master"].depends_on == (STORE,)


def test_store_exists_with_the_workers_not_before() -> None:
    large, small = template(cpu="1", memory="1Gi"), template(memory="1Gi")
    spec = spec_of(
        elastic(
            Fetch=task(template=large),
            Prepare=task(template=large, dependsOn=[after("Fetch")]),
            Master=task(template=small, dependsOn=[after("Prepare")]),
            Worker=task(template=small),
        )
    )
    assert [set(stage.tasks) for stage in spec.stages] == [{"Fetch"}, {"Prepare"}, {"Master", "Worker", "Rendezvous"}]
    assert spec.tasks["Rendezvous"].depends_on == (Dependency(task_type="Prepare", phase="Succeeded"),)
    assert spec.charge == {"jobs": 1, "pods": 3, "cpu": 1000, "memory": 2 * 2**30 + 320 * 2**20}


def test_master_outside_of_the_world_of_workers_does_not_wait_for_the_store() -> None:
    before = elastic(Master=task(), Worker=task(dependsOn=[after("Master")]))
    apart = elastic(Master=task(), Prepare=task(), Worker=task(dependsOn=[after("Prepare")]))
    for spec in (spec_of(before), spec_of(apart)):
        assert spec.tasks["Master"].depends_on == ()
        assert spec.tasks["Worker"].depends_on[-1] == STORE
    circle = elastic(Master=task(), Worker=task(), Rendezvous=task(dependsOn=[{"taskType": "Master"}]))
    assert spec_of(circle).tasks["Master"].depends_on == ()


@pytest.mark.parametrize("upstream", ["Service", "Missing", "Worker"])
def test_upstream_that_never_succeeds_is_reported_once(upstream: str) -> None:
    tasks = {"Service": task(restartPolicy="Always"), "Worker": task(dependsOn=[after(upstream)])}
    with pytest.raises(InvalidObject) as found:
        torchjob.parse(elastic(**tasks))
    with pytest.raises(InvalidObject) as plain:
        torchjob.parse(elastic(None, **tasks))
    assert found.value.problems == plain.value.problems


def test_declared_task_takes_the_place_of_the_store() -> None:
    own = task(template=template(cpu="1"))
    spec = spec_of(elastic(Worker=task(), Rendezvous=own))
    store = spec.tasks["Rendezvous"]
    assert (store.template, store.auxiliary, store.critical) == (own["template"], True, True)
    assert (spec.rendezvous, spec.has_implied_rendezvous) == (True, False)
    assert spec.tasks["Worker"].depends_on == (STORE,)


def test_declared_task_says_how_it_differs() -> None:
    own = task(critical=False, dependsOn=[{"taskType": "Worker"}])
    spec = spec_of(elastic(Worker=task(), Rendezvous=own))
    assert (spec.tasks["Rendezvous"].critical, spec.tasks["Rendezvous"].auxiliary) == (False, True)
    assert spec.tasks["Worker"].depends_on == ()


@pytest.mark.parametrize(
    "worker",
    [
        None,
        {},
        {"template": {"spec": {}}},
        task(dependsOn=3),
        task(dependsOn=[3]),
        {"template": {"spec": {"containers": [1]}}},
    ],
)
def test_malformed_workers_are_reported_as_they_are(worker: Any) -> None:
    manifest = elastic(Worker=worker)
    with pytest.raises(InvalidObject) as found:
        torchjob.parse(manifest)
    with pytest.raises(InvalidObject) as plain:
        torchjob.parse(elastic(None, Worker=worker))
    assert found.value.problems == plain.value.problems


def test_manifest_is_left_as_it_is_and_the_cache_agrees() -> None:
    manifest = elastic()
    before = copy.deepcopy(manifest)
    assert torchjob.parse(manifest) == cached_parser.parse(manifest)
    assert manifest == before


def test_measurements_do_not_depend_on_the_implied_template() -> None:
    assert spec_of(elastic()).digest == spec_of(elastic(None)).digest
    declared = elastic(Worker=task(numTasks=2), Rendezvous=task())
    assert spec_of(declared).digest != spec_of(elastic()).digest


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_admission_of_an_earlier_version_has_no_store(workers: int | None) -> None:
    found = torchjob.parse(elastic(Master=task(), Worker=task(numTasks=2)))
    earlier = Admission(queue="team", attempt=1, epoch=1, workers=workers)
    granted = grant.as_granted(found, earlier)
    plain = spec_of(elastic(None, Master=task(), Worker=task(numTasks=workers or 2)))
    assert granted.spec == plain.model_copy(update={"torch_elastic_policy": found.spec.torch_elastic_policy})
    assert not granted.spec.rendezvous
    assert grant.as_granted(found, earlier.model_copy(update={"grown": 0})).spec.rendezvous


@pytest.mark.parametrize(
    "tasks",
    [{"rendezvous": task()}, {f"T{number}": task() for number in range(15)}],
    ids=["another spelling", "no room"],
)
def test_job_without_room_for_the_store_is_refused_but_runs_if_it_is_stored(tasks: dict[str, Any]) -> None:
    stored = elastic(Worker=task(), **tasks)
    (refused,) = served.refusals(stored)
    assert refused == f"spec.torchTaskSpecs: Invalid value: {checks.NO_ROOM_FOR_STORE}"
    with pytest.raises(InvalidObject, match=checks.NO_ROOM_FOR_STORE):
        torchjob.parse_submitted(stored)
    suspended = {**stored, "spec": {**stored["spec"], "suspend": True}}
    assert served.refusals(suspended, stored) == []
    in_place = elastic({**POLICY, "mode": "InPlaceRestart"}, Worker=task(), **tasks)
    assert served.refusals(in_place) == []
