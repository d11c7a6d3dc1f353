"""The answers about the processes of the installation: their health and their settings.

One rule: that of `coordinator.http.openapi.queue_models`.
"""

from pydantic import Field

from coordinator.http.openapi.queue_models import AnswerModel


class JobCounts(AnswerModel):
    """Numbers of jobs."""

    waiting: int
    admitted: int


class WorkCounts(AnswerModel):
    """Numbers of keys that wait for workers or are with them."""

    ready: int
    delayed: int
    leased: int


class WaitTimes(AnswerModel):
    """The waits of the latest first admissions."""

    admissions: int
    p50_seconds: float | None
    p95_seconds: float | None


class SystemStatus(AnswerModel):
    """The health of the installation. If Redis does not answer, `redis` says so and its numbers are absent."""

    leader: str | None
    answered_by: str
    synced: bool
    failing: str
    waits: WaitTimes
    redis: str
    at: float | None = None
    epoch: int | None = None
    picks: int | None = None
    reconciles: int | None = None
    jobs: JobCounts | None = None
    work: WorkCounts | None = None
    workers: dict[str, int] | None = Field(default=None, description="threads by worker")
    worker_versions: dict[str, str] | None = None
    idle_workers: list[str] | None = None


class SettingsInUse(AnswerModel):
    """The settings of the coordinator that answers; passwords are left out."""

    version: str
    settings: dict[str, str]
