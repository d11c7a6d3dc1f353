"""The gangs of jobs: equal ones are one object."""

from coordinator.cache import gang_shapes, views
from queues.placement.gangs import Gang
from tests.support.coordinator import desk


def gang(node: str) -> Gang:
    """Return the gang in the view of a job that names a node."""
    body = desk.manifest("train", "a", {"Worker": desk.task()})
    body["spec"]["torchTaskSpecs"]["Worker"]["template"]["spec"]["nodeName"] = node
    given = {"namespace": "team", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}
    found = views.job_view({**body, "metadata": {**body["metadata"], **given}}).gang
    assert found is not None
    return found


def test_a_job_keeps_its_gang_among_any_number_of_others() -> None:
    kept = gang("mine")
    growth = gang_shapes.growth(kept, 2)
    others = [gang(f"n{number}") for number in range(5_000)]
    assert gang("mine") is kept
    assert gang_shapes.growth(kept, 2) is growth
    assert len(set(others)) == 5_000
