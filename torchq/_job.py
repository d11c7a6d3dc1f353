"""A job as both clients show it: a handle.

One rule: a handle has a uid, so that it never means a later job of the same name.
"""

from __future__ import annotations


class JobHandle:
    """The handle of a job: `namespace/name/uid`."""

    def __init__(self, handle: str) -> None:
        self._handle = handle

    @property
    def handle(self) -> str:
        """The text that finds the job again from anywhere: namespace/name/uid."""
        return self._handle

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return self._handle.split("/")[0]

    @property
    def name(self) -> str:
        """The name of the job, without its namespace."""
        return self._handle.split("/")[1]

    @property
    def uid(self) -> str:
        """The identity that distinguishes the job from other jobs of its name."""
        return self._handle.split("/")[2]

    def __repr__(self) -> str:
        return f"Job({self._handle!r})"

    def __str__(self) -> str:
        return self._handle

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.handle == self.handle

    def __hash__(self) -> int:
        return hash(self._handle)
