"""The cache of parsed specs: a job is parsed to the same result with and without similar jobs before it."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crds.errors import InvalidObject
from crds.torchjob import cached_parser, torchjob
from tests.crds.schema.test_agreement import jobs, names, queue_names, spoilt
from tests.crds.torchjob.test_torchjob import REFUSED
from tests.support.crds.builders import job, task, template

policies = st.fixed_dictionaries(
    {}, optional={"queue": queue_names, "priority": st.integers(-5, 5), "hold": st.booleans(), "more": st.just(1)}
)
own = st.fixed_dictionaries({}, optional={"schedulingPolicy": policies, "suspend": st.sampled_from([True, False, 1])})
statuses = st.sampled_from([{}, {"phase": "Queued"}, {"phase": "Sometimes"}, {"admission": {"queue": "a"}}])


def read(manifest: Any, by: Any) -> object:
    """Return all values of a parsed manifest, or the problems of the manifest."""
    try:
        found = by(manifest)
    except InvalidObject as error:
        return error.problems
    spec = found.spec
    told = (spec.model_fields_set, spec.scheduling_policy.model_fields_set, list(spec.tasks), spec.scope)
    return found, found.model_dump(), found.key, told, spec.stages, dict(spec.charge), spec.wants_port


@settings(max_examples=60)
@given(st.one_of(jobs(), spoilt()), st.lists(st.tuples(names, own, statuses), max_size=3))
def test_parsed_job_is_the_same_with_and_without_the_cache(first: dict[str, Any], others: list[Any]) -> None:
    shared = {name: value for name, value in first["spec"].items() if name not in ("schedulingPolicy", "suspend")}
    likes = [job(name, status=status, **shared, **varied) for name, varied, status in others]
    for each in (first, *likes, first):
        before = orjson.dumps(each)
        assert read(each, cached_parser.parse) == read(each, torchjob.parse)
        assert orjson.dumps(each) == before


@pytest.mark.parametrize(("manifest", "_found"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_problems_are_the_same_with_and_without_the_cache(manifest: Any, _found: list[str]) -> None:
    for _ in range(2):
        assert read(manifest, cached_parser.parse) == read(manifest, torchjob.parse)


def test_too_long_name_is_refused_despite_a_cached_spec() -> None:
    tasks = {"Evaluator" + "x" * 11: task(numTasks=10_000)}
    for length in (37, 38, 37, 40, 41):
        manifest = job("n" * length, torchTaskSpecs=tasks)
        assert read(manifest, cached_parser.parse) == read(manifest, torchjob.parse)
    assert cached_parser.parse(job("n" * 37, torchTaskSpecs=tasks))
    with pytest.raises(InvalidObject):
        cached_parser.parse(job("n" * 38, torchTaskSpecs=tasks))


def test_jobs_with_equal_tasks_share_the_parsed_tasks() -> None:
    one, other = (cached_parser.parse(job(name, schedulingPolicy={"queue": name})).spec for name in ("a", "b"))
    assert one.tasks is other.tasks
    assert one.charge is other.charge
    assert (one.scheduling_policy.queue, other.scheduling_policy.queue) == ("a", "b")


def test_long_or_invalid_spec_is_not_cached() -> None:
    known = cached_parser._parse_spec.cache_info().currsize
    kept = template()
    kept["metadata"] = {"annotations": {"note": "x" * cached_parser.LONGEST}}
    assert cached_parser.parse(job(torchTaskSpecs={"Worker": task(template=kept)})).spec.charge == {
        "jobs": 1,
        "pods": 1,
    }
    with pytest.raises(InvalidObject):
        cached_parser.parse(job(torchTaskSpecs={"Worker": {7: 7}}))
    assert cached_parser._parse_spec.cache_info().currsize == known
