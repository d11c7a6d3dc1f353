"""The brief of a job: with the spec that a worker knows, it gives the job that the leader has seen."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from crds.keys import JobKey
from crds.torchjob import cached_parser
from crds.torchjob.size_limits import LargeObject
from reconcilers.views import job_brief
from reconcilers.views.job_brief import KnownSpecs

KEY = JobKey("team", "digits", "u-1")
SECRET = "hunter2"


def manifest(**metadata: Any) -> dict[str, Any]:
    env = [{"name": "PASSWORD", "value": SECRET}]
    container = {"name": "torch", "image": "x", "args": [SECRET], "env": env}
    return {
        "apiVersion": "train.distributed.io/v1alpha1",
        "kind": "TorchJob",
        "metadata": {
            "namespace": KEY.namespace,
            "name": KEY.name,
            "uid": KEY.uid,
            "resourceVersion": "41",
            "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"train.distributed.io/retry-at": "2026-01-01T00:00:00Z"},
            **metadata,
        },
        "spec": {"torchTaskSpecs": {"Master": {"template": {"spec": {"containers": [container]}}}}},
        "status": {"phase": "Queued", "attempt": 2, "queue": {"name": "a", "reason": "NoRoom"}},
    }


def known(*manifests: dict[str, Any]) -> KnownSpecs:
    specs = KnownSpecs()
    for each in manifests:
        specs.note(each)
    return specs


def test_a_worker_that_knows_the_spec_gets_the_job_that_the_leader_has_seen() -> None:
    specs = known(manifest(name="another", uid="u-0", resourceVersion="7"))
    told = job_brief.read(job_brief.write(manifest()), KEY, specs)
    assert cached_parser.parse(told) == cached_parser.parse(manifest())


def test_a_job_without_a_status_has_none_afterwards() -> None:
    new = manifest()
    del new["status"]
    assert cached_parser.parse(job_brief.read(job_brief.write(new), KEY, known(new))) == cached_parser.parse(new)


def test_a_worker_that_knows_another_spec_only_gets_nothing() -> None:
    other = manifest()
    other["spec"] = {**other["spec"], "backoffLimit": 1}
    assert job_brief.read(job_brief.write(manifest()), KEY, known(other)) is None


def test_a_worker_gives_no_namespace_the_spec_of_another() -> None:
    own, others = manifest(), known(manifest(namespace="another"))
    assert job_brief.read(job_brief.write(own), KEY, others) is None


@pytest.mark.parametrize("brief", [b'["of another version"]', b"7", b'[{},"41",3,"",{},{},null]', b"{"])
def test_a_brief_that_cannot_be_read_says_nothing(brief: bytes) -> None:
    assert job_brief.read(brief, KEY, known(manifest())) is None


def test_a_brief_has_nothing_of_templates_and_of_annotations_of_others() -> None:
    applied = {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "train.distributed.io/links": "{}"}
    written = job_brief.write(manifest(annotations=applied, labels={"team": SECRET}))
    assert SECRET.encode() not in written
    assert b"train.distributed.io/links" in written


@pytest.mark.parametrize(
    "large",
    [
        manifest(annotations={"train.distributed.io/links": "x" * job_brief.LONGEST}),
        {**manifest(), "spec": {"torchTaskSpecs": {}, "more": "x" * job_brief.LONGEST_SPEC}},
        LargeObject(manifest()),
        manifest(deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
    ids=["annotation", "spec", "object", "deleted"],
)
def test_a_large_or_deleted_job_has_no_brief(large: dict[str, Any]) -> None:
    assert job_brief.write(large) == b""


def test_the_specs_that_were_used_longest_ago_are_forgotten() -> None:
    first, *others = [{**manifest(), "spec": {"backoffLimit": number}} for number in range(job_brief.REMEMBERED + 1)]
    specs = known(first, *others[:-1])
    assert job_brief.read(job_brief.write(first), KEY, specs) is not None
    specs.note(others[-1])
    assert job_brief.read(job_brief.write(first), KEY, specs) is not None
    assert job_brief.read(job_brief.write(others[0]), KEY, specs) is None


def kept_bytes(keep: Callable[[int], object], number: int) -> int:
    """Return how much memory is in use afterwards for what was kept for each of some numbers."""
    tracemalloc.start()
    try:
        kept = [keep(each) for each in range(number)]
        return tracemalloc.get_traced_memory()[0] - 8 * len(kept)
    finally:
        tracemalloc.stop()


def test_remembered_specs_take_no_more_memory_than_their_texts() -> None:
    specs, objects = KnownSpecs(), [{}] * 5_000  # 15 KB as a text, and more as objects
    made = ({"metadata": {"namespace": "team"}, "spec": {f"{number}": [*objects]}} for number in range(50))
    assert kept_bytes(lambda _: specs.note(next(made)), 50) < 55 * job_brief.LONGEST_SPEC


def test_briefs_take_no_more_memory_than_their_texts() -> None:
    length = len(job_brief.write(manifest(resourceVersion="100")))
    assert kept_bytes(lambda number: job_brief.write(manifest(resourceVersion=f"{100 + number}")), 99) < 130 * length
