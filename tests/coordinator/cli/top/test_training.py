"""Which jobs a look of `torchq top` asks for, and what it knows of the others."""

from typing import Any, cast

from coordinator.cli.commands import top
from coordinator.query.questions import Document, Queries
from coordinator.query.remote_queries import NoCoordinator
from crds.keys import JobKey
from tests.support.queues.builders import key


class Desk:
    """Answers with the number of the question, but never about one job."""

    def __init__(self, silent: JobKey | None = None) -> None:
        self.silent = silent
        self.asked: list[JobKey] = []

    def reports(self, job: JobKey) -> Document:
        if job == self.silent:
            raise NoCoordinator("no answer")
        self.asked.append(job)
        return {"step": len(self.asked)}


def test_jobs_are_asked_for_in_turn_and_keep_what_they_said() -> None:
    desk, reports = Desk(), top.TrainingReports()
    jobs = [key(f"job-{number}") for number in range(top.MOST_REPORTS + 1)]

    def look(*keys: JobKey) -> dict[JobKey, Any]:
        return reports.read(lambda: cast(Queries, desk), keys)

    assert look(*jobs) == {job: {"step": at} for at, job in enumerate(jobs[:-1], 1)} | {jobs[-1]: {}}
    assert look(*jobs)[jobs[-1]] == {"step": top.MOST_REPORTS + 1}
    assert desk.asked[top.MOST_REPORTS] == jobs[-1], "who was never asked comes first"
    desk.silent = jobs[1]
    assert look(*jobs[1:3]) == {job: {"step": at} for job, at in zip(jobs[1:3], (13, 14), strict=True)}
    assert len(desk.asked) == 2 * top.MOST_REPORTS, "nobody else is asked once the coordinator does not answer"
