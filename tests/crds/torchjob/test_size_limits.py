"""A job beyond the bounds of size is refused before it is parsed at length."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds import labels
from crds.errors import InvalidObject
from crds.resources import quantities
from crds.torchjob import cached_parser, demand, size_limits, torchjob
from crds.torchjob.size_limits import LargeObject, ObjectWithoutSpec
from tests.support.crds.builders import job, task, template

MASTER = "spec.torchTaskSpecs.Master"
Make = Callable[[int], dict[str, Any]]


def of(**spec: Any) -> dict[str, Any]:
    containers = {"containers": [{"name": "c"}], **spec}
    return job(torchTaskSpecs={"Master": task(template={"spec": containers})})


def containers(count: int, asks: int = 0) -> list[dict[str, Any]]:
    return [
        {"name": f"c{number}", "resources": {"requests": {f"a.b/{number}-{ask}": 1 for ask in range(asks)}}}
        for number in range(count)
    ]


def marked(name: str, value: Any) -> dict[str, Any]:
    found = job()
    return found | {"metadata": found["metadata"] | {name: value}}


BOUNDS: dict[str, tuple[str, int, Make]] = {
    "containers": (f"{MASTER}.template.spec.containers", 64, lambda n: of(containers=containers(n))),
    "init containers": (f"{MASTER}.template.spec.initContainers", 64, lambda n: of(initContainers=containers(n))),
    "quantities": ("spec.torchTaskSpecs", 500, lambda n: of(overhead={f"a.b/{number}": 1 for number in range(n)})),
    "values": ("spec.torchTaskSpecs", 20_000, lambda n: of(x=[0] * (n - 7))),
    "labels": ("metadata.labels", 5_000, lambda n: marked("labels", {str(number): "" for number in range(n)})),
    "finalizers": ("metadata.finalizers", 5_000, lambda n: marked("finalizers", ["a/b"] * n)),
    "fields": ("spec", 64, lambda n: job(**{f"u{number}": 0 for number in range(n - 1)})),
    "fields of a task": (
        MASTER,
        64,
        lambda n: job(torchTaskSpecs={"Master": task(**{f"u{number}": 0 for number in range(n - 1)})}),
    ),
    "members": ("spec.minMembers", 16, lambda n: job(minMembers={f"T{number}": 1 for number in range(n)})),
    "dependencies": (
        f"{MASTER}.dependsOn",
        16,
        lambda n: job(torchTaskSpecs={"Master": task(dependsOn=[{"taskType": "A"}] * n)}),
    ),
    "spot labels": (
        f"{MASTER}.spotTaskSpec.labels",
        64,
        lambda n: job(
            torchTaskSpecs={"Master": task(spotTaskSpec={"labels": {str(number): "" for number in range(n)}})}
        ),
    ),
}


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("long", [False, True])
def test_job_beyond_a_bound_is_refused(bound: str, long: bool) -> None:
    field, most, make = BOUNDS[bound]
    assert size_limits.problem(make(most)) is None
    for count in (most + 1, 20 * most):
        manifest = LargeObject(make(count)) if long else make(count)
        with pytest.raises(InvalidObject) as error:
            cached_parser.parse(manifest)
        (problem,) = error.value.problems  # exactly one problem, although the excess items are wrong in other ways, too
        assert problem.field == field


def test_long_job_is_parsed_like_a_short_one_except_for_annotations() -> None:
    found = job()
    many = {f"a/{number}": "x" for number in range(3_000)} | {labels.RETRY_AT: "2026-01-01T00:00:00Z"}
    manifest = found | {"metadata": found["metadata"] | {"annotations": many}}
    parsed = cached_parser.parse(LargeObject(manifest))
    assert parsed.metadata.annotations == {labels.RETRY_AT: "2026-01-01T00:00:00Z"}
    assert parsed.spec == cached_parser.parse(manifest).spec
    assert parsed.key == cached_parser.parse(manifest).key


def test_job_read_without_its_spec_explains_why_it_cannot_run() -> None:
    with pytest.raises(InvalidObject, match="at most 20000 values"):
        torchjob.parse(ObjectWithoutSpec({"metadata": job()["metadata"]}))


@given(st.recursive(st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2), inner)))
def test_values_counts_nested_values(value: Any) -> None:
    def count(each: Any) -> int:
        inner = each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        return 1 + sum(map(count, inner))

    assert size_limits.count_values([value], 10**6) == 1 + count(value)


def test_long_wrong_list_is_reported_as_one_problem() -> None:
    wrong = [{} for _ in range(5_000)]
    manifest = of(containers=[{"name": "c", "env": wrong, "ports": wrong}])
    with pytest.raises(InvalidObject) as error:
        torchjob.parse(manifest)
    assert len(error.value.problems) <= 2


class TestSums:
    """The sum of a pod's requests: the cost is linear in the number of containers, and bounded."""

    @pytest.fixture
    def read(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Record the resource names whose quantities are read."""
        names: list[str] = []
        real = quantities.parse_capped

        def capped(name: str, quantity: str | int | float) -> int:
            names.append(name)
            return real(name, quantity)

        monkeypatch.setattr(quantities, "parse_capped", capped)
        return names

    @pytest.mark.parametrize("kind", ["containers", "initContainers"])
    def test_sum_over_many_containers_is_bounded(self, read: list[str], kind: str) -> None:
        pod = {"containers": [{"name": "c"}], kind: containers(14_000, asks=1)}
        assert len(demand.pod_demand(pod)) == demand.MOST_CONTAINERS + 1
        assert len(read) == demand.MOST_CONTAINERS

    def test_sum_of_many_resources_is_bounded(self, read: list[str]) -> None:
        asked = {f"a.b/{number}": 1 for number in range(30_000)} | {"cpu": 2}
        everywhere = [{"resources": {"requests": asked, "limits": asked}} for _ in range(400)]
        spec = {"containers": everywhere, "overhead": asked, "resources": {"requests": asked}}
        assert demand.pod_demand(spec)["cpu"] >= 2_000
        assert len(read) <= 3_000

    def test_cpu_and_memory_are_counted_beyond_the_bound(self) -> None:
        first = {"resources": {"requests": {f"a.b/{number}": 1 for number in range(2_001)}}}
        rest = [{"resources": {"requests": {"cpu": "1", "memory": 5, "a.b/x": 1}}} for _ in range(10)]
        found = demand.pod_demand({"containers": [first, *rest]})
        assert (found["cpu"], found["memory"]) == (10_000, 50)
        assert "a.b/x" not in found


def test_ordinary_job_is_within_all_bounds() -> None:
    tasks = {
        name: task(numTasks=9, template=template(cpu="1", memory="2Gi", **{"nvidia.com/gpu": 8}))
        for name in ("Master", "Worker", "Evaluator")
    }
    assert size_limits.problem(job(torchTaskSpecs=tasks)) is None
