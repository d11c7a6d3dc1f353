"""A job with the workers that were granted, and the text of the indexes of its workers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.torchjob import grant, torchjob
from crds.torchjob.status import Admission
from tests.support.crds.builders import job, task

ELASTIC = torchjob.parse(
    job(torchTaskSpecs={"Master": task(), "Worker": task(numTasks=6)}, torchElasticPolicy={"numMinReplicas": 2})
)


def admission(workers: int | None, indexes: str | None = None) -> Admission:
    return Admission(queue="team", attempt=1, epoch=1, workers=workers, indexes=indexes, grown=0)


@pytest.mark.parametrize("workers", [2, 4, 9])
def test_granted_job_is_the_job_that_requests_the_granted_workers(workers: int) -> None:
    seen = ELASTIC.spec.tasks, ELASTIC.spec.stages, ELASTIC.spec.charge, ELASTIC.spec.digest  # this fills the caches
    found = grant.as_granted(ELASTIC, admission(workers))
    manifest = job(
        torchTaskSpecs={"Master": task(), "Worker": task(numTasks=workers)}, torchElasticPolicy={"numMinReplicas": 2}
    )
    expected = torchjob.parse(manifest)
    assert found == expected
    assert (found.spec.tasks, found.spec.charge) == (expected.spec.tasks, expected.charge)
    assert found.charge == ELASTIC.charge_of(workers)
    assert (found.spec.members("Worker"), found.spec.stages, found.spec.digest) == (2, seen[1], seen[3])


@pytest.mark.parametrize(("least", "needed"), [({}, 6), ({"minMembers": {"Worker": 3}}, 3)])
def test_job_needs_no_more_workers_to_run_than_it_requests(least: dict[str, Any], needed: int) -> None:
    wanted = torchjob.parse(job(torchTaskSpecs={"Worker": task(numTasks=6)}, torchElasticPolicy={}, **least))
    found = grant.as_granted(wanted, admission(8)).spec
    assert (found.members("Worker"), found.gang_members("Worker"), found.worker_count) == (needed, needed, 8)


def test_job_that_was_granted_all_is_unchanged() -> None:
    assert grant.as_granted(ELASTIC, admission(6)) is ELASTIC
    assert grant.as_granted(ELASTIC, admission(None)) is ELASTIC
    without = torchjob.parse(job(torchTaskSpecs={"Master": task()}))
    assert grant.as_granted(without, admission(3)) is without


@given(st.sets(st.integers(0, 9_999), min_size=1, max_size=40) | st.integers(1, 40).map(lambda n: set(range(n))))
def test_indexes_are_read_as_they_were_written(granted: set[int]) -> None:
    text = grant.format_indexes(granted)
    written = Admission.model_validate(
        {"queue": "team", "attempt": 1, "epoch": 1, "workers": len(granted), "indexes": text}
    )
    assert grant.indexes(written, 99) == tuple(sorted(granted))


def test_text_of_indexes_has_ranges_and_is_absent_for_the_lowest() -> None:
    assert grant.format_indexes((4, 0, 2, 3, 7)) == "0,2-4,7"
    assert grant.format_indexes((1, 2)) == "1-2"
    assert grant.format_indexes((1, 0)) is None
    assert grant.indexes(admission(None), 3) == (0, 1, 2)
