"""What a reader without a command line is told about a job: the same as a command prints."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from coordinator.cli import api_client, output
from coordinator.errors import CoordinatorError
from coordinator.leader.coordinator import Coordinator
from coordinator.query.questions import Document, Queries
from coordinator.query.remote_queries import Fetch, RemoteQueries
from coordinator.routing.feasibility import Obstacle
from coordinator.runs.feasibility_check import FeasibilityCheck
from coordinator.wording import explanations, job_answers
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from crds.torchjob.torchjob import TorchJob
from kube.client import KubernetesCluster
from tests.coordinator.cli.jobs.test_holders import Place
from tests.coordinator.cli.test_api_client import Store, asked, desk, store  # noqa: F401 - fixtures
from tests.support.coordinator import asking
from tests.support.coordinator.command import Torchq

T = TypeVar("T")
AT = "2026-01-01T00:00:00Z"
ADMITTED = {"phase": "Admitted", "admission": {"queue": "a", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}}}


@dataclass(frozen=True)
class PageReader:
    """A JobReader with a cluster and an access to the coordinator, as a page has them."""

    cluster: KubernetesCluster
    fetch: Fetch

    def ask(self, question: Callable[[Queries], T], otherwise: Callable[[Exception], T]) -> T:
        try:
            return question(RemoteQueries(self.fetch))
        except CoordinatorError as error:
            return otherwise(error)

    def place(self, key: JobKey) -> Document:
        return RemoteQueries(self.fetch).job(key)

    def check(self, job: TorchJob) -> list[Obstacle]:
        return FeasibilityCheck(lambda: self.fetch)([job])[0]


@pytest.mark.parametrize(
    ("job_spec", "status", "words"),
    [
        ({}, {}, "held by job"),
        ({"suspend": True}, {"phase": "Suspended"}, "to continue: torchq job resume"),
        ({}, ADMITTED, "attempt 1: the job holds room"),
        ({}, {"phase": "Succeeded", "completionTime": AT}, "does not wait: Succeeded"),
    ],
)
def test_a_page_says_of_a_job_what_why_and_show_print(
    asked: Torchq,  # noqa: F811
    desk: Coordinator,  # noqa: F811
    store: Store,  # noqa: F811
    embedded_cluster: KubernetesCluster,
    namespace: str,
    job_spec: dict[str, Any],
    status: dict[str, Any],
    words: str,
) -> None:
    place = Place(embedded_cluster, namespace, store)
    place.hold(place.job("holder"), 10)
    place.wait(place.job("train", **job_spec))
    item = embedded_cluster.patch(TORCHJOBS, "train", {"status": status}, namespace, subresource="status")
    headers = asking.headers(desk.cluster)
    reader = PageReader(embedded_cluster, api_client.via_url(desk.leadership.address, headers=lambda _: headers))

    document = explanations.describe(item, job_answers.read_known(reader, item, output.now()))
    assert document == json.loads(asked("job", "why", "train", "-o", "json").stdout)
    printed = asked("job", "why", "train").stdout
    assert "\n  ".join(explanations.sentences(document)) + "\n" == printed
    assert words in printed

    _, details = job_answers.read_details(reader, item, output.now())
    shown = json.loads(asked("job", "show", "train", "-o", "json").stdout)["details"]
    assert details | {"held": None} == shown | {"held": None}
