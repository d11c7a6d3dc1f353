"""The number of processes that torchrun starts in each pod: the field, its default, and its limits."""

from typing import Any

import pytest

from crds.errors import InvalidObject
from crds.torchjob import torchjob
from tests.support.crds import served
from tests.support.crds.builders import job, task, template


def refused(manifest: dict[str, Any]) -> list[str]:
    try:
        torchjob.parse(manifest)
    except InvalidObject as error:
        return [str(problem) for problem in error.problems]
    return []


def processes(manifest: dict[str, Any]) -> dict[str, int]:
    spec = torchjob.parse(manifest).spec
    return {name: spec.processes(name) for name in spec.tasks}


def gpus(count: Any, name: str = "nvidia.com/gpu") -> dict[str, Any]:
    return task(template=template(**{name: count}))


def containers(*found: dict[str, Any]) -> dict[str, Any]:
    return task(template={"spec": {"containers": list(found)}})


def container(name: str, **resources: Any) -> dict[str, Any]:
    return {"name": name, "resources": resources}


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (task(), 1),
        (gpus(8), 8),
        (gpus("8"), 8),
        (gpus(4, "amd.com/gpu"), 4),
        (gpus(4, "gpu.intel.com/i915"), 4),
        (gpus(2, "gpu.intel.com/xe"), 2),
        (gpus(2, "gpu.intel.com/i915_monitoring"), 1),
        (gpus(0), 1),
        (gpus(2, "nvidia.com/mig-1g.5gb"), 1),
        (gpus(2, "nvidia.com/gpu.shared"), 1),
        (containers(container("a", requests={"nvidia.com/gpu": 2}, limits={"nvidia.com/gpu": 2})), 2),
        (containers(container("a", limits={"nvidia.com/gpu": 2}), container("b", limits={"nvidia.com/gpu": 8})), 2),
        (containers(container("a", limits={"nvidia.com/gpu": 2}), container("torch", limits={"nvidia.com/gpu": 8})), 8),
        (containers(container("a", limits={"nvidia.com/gpu": 2}), container("torch")), 1),
    ],
)
def test_default_is_the_number_of_gpus_of_the_main_container(described: dict[str, Any], expected: int) -> None:
    assert processes(job(torchTaskSpecs={"Worker": described})) == {"Worker": expected}


def test_default_of_each_task_type_counts_the_gpus_of_its_own_pods() -> None:
    tasks = {"AIMaster": task(), "Master": gpus(2), "Worker": gpus(8)}
    assert processes(job(torchTaskSpecs=tasks)) == {"AIMaster": 1, "Master": 2, "Worker": 8}


@pytest.mark.parametrize("field", ["nprocPerNode", "torchElasticPolicy"])
@pytest.mark.parametrize(("asked", "expected"), [(1, 1), (3, 3), (1024, 1024), ("gpu", 8)])
def test_number_or_gpu_is_accepted_in_either_field(field: str, asked: Any, expected: int) -> None:
    given = asked if field == "nprocPerNode" else {"nprocPerNode": asked, "mode": "InPlaceRestart"}
    manifest = job(torchTaskSpecs={"Worker": gpus(8)}, **{field: given})
    assert processes(manifest) == {"Worker": expected}
    assert served.refusals(manifest) == []


@pytest.mark.parametrize("wrong", [0, -1, 1025, 2**40, 1.5, True, "8", "cpu", "auto", "GPU", "", [], {}, ["gpu"]])
@pytest.mark.parametrize("field", ["spec.nprocPerNode", "spec.torchElasticPolicy.nprocPerNode"])
def test_refusal_of_another_value_names_the_field(field: str, wrong: Any) -> None:
    value = wrong if field == "spec.nprocPerNode" else {"nprocPerNode": wrong}
    manifest = job(torchTaskSpecs={"Worker": gpus(8)}, **{field.split(".")[1]: value})
    (found,) = refused(manifest)
    assert found.startswith(f"{field}: Invalid value: ")
    assert found.endswith('write a number from 1 to 1024, or "gpu"')
    said = served.refusals(manifest)
    assert said == [each for each in said if each.startswith(f"{field}: ")] != []


@pytest.mark.parametrize(("one", "other"), [(8, 4), (8, "gpu"), ("gpu", 8)])
def test_different_values_in_the_two_fields_are_refused(one: Any, other: Any) -> None:
    manifest = job(torchTaskSpecs={"Worker": gpus(8)}, nprocPerNode=one, torchElasticPolicy={"nprocPerNode": other})
    said = (
        "spec.nprocPerNode and spec.torchElasticPolicy.nprocPerNode are two names of one value and must not differ: "
        "give one of them"
    )
    for found in (refused(manifest), served.refusals(manifest)):
        (problem,) = found
        assert problem.startswith("spec.nprocPerNode: Invalid value: ")
        assert problem.endswith(said)


@pytest.mark.parametrize("value", [8, "gpu"])
def test_equal_values_in_the_two_fields_are_accepted(value: Any) -> None:
    manifest = job(torchTaskSpecs={"Worker": gpus(8)}, nprocPerNode=value, torchElasticPolicy={"nprocPerNode": value})
    assert refused(manifest) == served.refusals(manifest) == []


@pytest.mark.parametrize("field", ["nprocPerNode", "torchElasticPolicy"])
def test_gpu_is_refused_if_the_main_container_requests_none(field: str) -> None:
    given = "gpu" if field == "nprocPerNode" else {"nprocPerNode": "gpu"}
    tasks = {"Master": gpus(8), "Worker": task(), "AIMaster": task()}
    named = "spec.nprocPerNode" if field == "nprocPerNode" else "spec.torchElasticPolicy.nprocPerNode"
    assert refused(job(torchTaskSpecs=tasks, **{field: given})) == [
        f'{named}: Invalid value: "gpu": the main container of task Worker asks for no GPU: '
        "ask for one in its resources (nvidia.com/gpu), or write a number"
    ]


def test_invalid_template_is_the_only_reported_problem() -> None:
    wrong = job(torchTaskSpecs={"Worker": gpus("many")}, nprocPerNode="gpu")
    (found,) = refused(wrong)
    assert found.startswith("spec.torchTaskSpecs.Worker.template.spec.containers[0].resources")
