"""Changes of jobs and queues by a client that is no command line."""

from datetime import UTC, datetime
from typing import Any

import pytest

from coordinator.control import job_changes, queue_changes
from coordinator.control.change_author import ChangeAuthor
from crds.api_resources import EVENTS, TENANT_QUEUES, TORCHJOBS
from kube import errors
from kube.client import KubernetesCluster
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import manifest


def test_an_author_changes_tells_and_writes_events_in_the_name_of_one_person(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    told, notes = list[str](), list[str]()
    author = ChangeAuthor(
        cluster=embedded_cluster, user=lambda: "ada", tell=told.append, warn=notes.append, reason="a test"
    )
    torchq("queue", "create", "a")
    job = embedded_cluster.create(TORCHJOBS, manifest("train", "a"), namespace)
    embedded_cluster.delete(TORCHJOBS, "train", namespace)
    later = embedded_cluster.create(TORCHJOBS, manifest("train", "a"), namespace)
    with pytest.raises((errors.Conflict, errors.Invalid)):  # another job has that name now
        author.change_job(job, job_changes.suspend(job))
    assert author.change_job(later, job_changes.suspend(later))["spec"]["suspend"] is True
    assert author.change_queue("a", queue_changes.set_weight("a", 3))["spec"]["weight"] == 3
    with pytest.raises(errors.NotFound, match="torchq queue create b"):
        author.change_queue("b", queue_changes.pause("b"))
    assert (told, notes) == ([f"job {namespace}/train suspended", "queue a: weight 3"], [])
    events = embedded_cluster.list(EVENTS).items
    assert {each["message"] for each in events if each["message"].endswith(", by ada: a test")} == {
        f"job {namespace}/train suspended, by ada: a test",
        "queue a: weight 3, by ada: a test",
    }
    assert embedded_cluster.get(TENANT_QUEUES, "a")["spec"]["weight"] == 3


WAITING: dict[str, Any] = {"phase": "Queued"}
RUNNING = {"phase": "Running", "admission": {"queue": "a"}}
ENDED = {"phase": "Failed"}


@pytest.mark.parametrize(
    ("status", "refused"),
    [(WAITING, set()), (RUNNING, {"hold", "bump"}), (ENDED, {"resume", "cancel", "bump"})],
)
def test_each_verb_refuses_the_jobs_that_it_makes_no_sense_for(status: dict[str, Any], refused: set[str]) -> None:
    item = manifest("train", "a") | {"status": status}
    item["metadata"] |= {"namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"}
    now, figures = datetime(2026, 1, 1, tzinfo=UTC), {"status": {}, "spec": {"agingSeconds": 600}}
    verbs = {
        "suspend": lambda: job_changes.suspend(item),
        "hold": lambda: job_changes.hold(item),
        "cancel": lambda: job_changes.cancel(item),
        "resume": lambda: job_changes.resume(item, now),
        "bump": lambda: job_changes.bump(item, lambda _: figures, now),
    }
    for verb, make in verbs.items():
        if verb in refused:
            with pytest.raises(errors.Conflict, match=r"^job team/train "):
                make()
        else:
            make()
