"""The place where the judges of jobs put the wanted fields of the statuses of these jobs.

One rule: a put is a wish. The leader writes such a put (`coordinator.leader.status_writer`), unless a newer put has
overtaken it.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from crds.keys import JobKey


class JobLane(Protocol):
    """The statuses of jobs that are yet to be written. Any thread may use the lane."""

    def put(self, key: JobKey, fields: Mapping[str, Any], version: str = "") -> None:
        """Want fields of the status of a job that was judged as of `version`. These fields are added to the fields that
        wait for the same version of the job, and replace fields for another version."""

    def discard(self, key: JobKey, *names: str) -> None:
        """Want these fields no more, or no field if none is named."""

    def waiting(self, key: JobKey) -> Mapping[str, Any]:
        """Return the fields that are yet to be written; empty if there are none."""

    def is_under_way(self, key: JobKey) -> bool:
        """Return whether the job's status is being written, or was and the watch has not shown it yet."""
