"""The values that calls take and give: roles, log lines, the end of a job.

One rule: values are frozen, and each has one form as JSON.
"""

from __future__ import annotations

import dataclasses
import numbers
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchq._errors import Invalid


@dataclass(frozen=True)
class Role:
    """One task of a job that has several: its command, and the resources of each of its pods."""

    command: Sequence[str]
    nodes: int | tuple[int, int] = 1
    """How many pods; each is one node of the job. The role Worker may have a range, as (1, 3)."""
    gpus: int = 0
    """GPUs of each pod."""
    cpus: float | str | None = None
    """CPUs of each pod."""
    memory: str | None = None
    """Memory of each pod, as in `16Gi`."""
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict)
    """Variables with values of Secrets: {"WANDB_API_KEY": "SECRET/KEY"}."""
    after: str | None = None
    """The role that has to be ready before this one starts."""


@dataclass(frozen=True)
class LogLine:
    """A line that a pod has printed, without its line end."""

    pod: str
    """The task and the index of the pod, as in `master-0`. Empty for a note of torchq itself, as why the job waits."""
    text: str
    time: str | None = None
    """When the line was printed, in the format of RFC 3339; None if the server does not know."""

    def __str__(self) -> str:
        return f"[{self.pod}] {self.text}" if self.pod else self.text


@dataclass(frozen=True)
class Ending:
    """The event that ended a wait for a job."""

    handle: str
    """The handle of the job: namespace/name/uid."""
    outcome: str
    """Succeeded, Failed, Cancelled or Deleted; the goal of the wait, as Running, if it was another one."""
    message: str = ""
    """Why, in one sentence."""
    result: Any = None
    """The result that rank 0 gave, as `Job.result` returns it; None if it gave none."""
    reason: str = ""
    """Why, in one word: PodFailed, BackoffLimitExceeded, DeadlineExceeded, Cancelled, ... (docs/conditions.md)."""
    exit_code: int | None = None
    """The exit code of the pod that failed, 0 of a job that has succeeded; None without one."""


def as_json(value: object, name: str) -> Any:
    """Return a value in its JSON form. `name` is the name of the value in messages. Raises Invalid for a value that
    JSON has not.
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, numbers.Integral):  # one of numpy, as all other kinds of numbers
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Role):
        given = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return {key: as_json(part, f"{name}.{key}") for key, part in given.items() if part not in (None, {})}
    handle = getattr(value, "handle", None)
    if isinstance(handle, str):
        return handle
    if isinstance(value, Mapping):
        return {str(key): as_json(part, f"{name}.{key}") for key, part in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return [as_json(part, f"{name}[{place}]") for place, part in enumerate(value)]
    raise Invalid(f"{name}: {type(value).__name__} cannot be sent: give text, numbers, lists or maps")
