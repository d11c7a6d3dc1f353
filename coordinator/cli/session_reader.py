"""The access of one invocation to what commands ask about jobs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import click

from coordinator.cli import api_client
from coordinator.cli.session import Session
from coordinator.query.questions import Document, Queries
from coordinator.query.remote_queries import Withheld
from coordinator.routing.feasibility import Obstacle
from coordinator.runs import feasibility_check
from crds.keys import JobKey
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.client import KubernetesCluster

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionReader:
    """A `coordinator.wording.job_answers.JobReader`."""

    session: Session

    @property
    def cluster(self) -> KubernetesCluster:
        """See JobReader."""
        return self.session.cluster

    def ask(self, question: Callable[[Queries], T], otherwise: Callable[[Exception], T]) -> T:
        """See JobReader."""
        return api_client.ask(self.session, question, otherwise)

    def place(self, key: JobKey) -> Document:
        """See JobReader. What the status of the job says has to do where no coordinator tells more."""
        try:
            return api_client.find(self.session).job(key)
        except (errors.Forbidden, Withheld) as error:
            click.echo(f"note: {error}", err=True)
            return {"state": "absent"}

    def check(self, job: TorchJob) -> list[Obstacle]:
        """See JobReader."""
        (found,) = feasibility_check.FeasibilityCheck(partial(api_client.coordinator, self.session))([job])
        return found
