"""The init container that unpacks the code of a job, and why it failed for good.

One rule: pure, over a pod as the API server shows it. Another pod of the job would fail in the same way: its image has
no Python, or the code differs from the submitted code.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from crds import excerpts, timestamps

CONTAINER = "torchq-code"
NO_PYTHON = "NoPython"
NOT_UNPACKED = "CodeNotUnpacked"
FOR_GOOD = frozenset({NO_PYTHON, NOT_UNPACKED})
"""The reasons of pods whose code could not be unpacked."""
LACKS_PYTHON = "the image has no python3, which unpacks the code of the job"
SAYS_NOTHING = "its code could not be unpacked"
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError"})
_NOT_STARTED_CODES = (127, 128)
"""The exit codes that container runtimes give to containers whose program could not be executed."""
_NO_PROGRAM = re.compile("executable file|no such file or directory", re.IGNORECASE)
_OWN_FAILURE = 1
"""The exit code with which the program that unpacks says in one line why it cannot."""


LONGEST = 600
"""The largest number of characters of a message, which the pods of a job share."""


@dataclass(frozen=True, slots=True)
class CodeFailure:
    """Why the code of a pod cannot be unpacked."""

    reason: str
    message: str
    ended: float | None
    """When the container ended, in seconds since the epoch."""


def find_failure(status: Mapping[str, Any]) -> CodeFailure | None:
    """Return why the code of a pod cannot be unpacked; None if there is no reason."""
    for state in _ended_states(status):
        said, code = str(state.get("message") or ""), state.get("exitCode")
        if code == _OWN_FAILURE:
            return _failure(NOT_UNPACKED, said, state)
        is_not_started = state.get("reason") in _NOT_STARTED or code in _NOT_STARTED_CODES
        if is_not_started and (not said or ("python3" in said and _NO_PROGRAM.search(said))):
            return _failure(NO_PYTHON, LACKS_PYTHON, state)
    return None


def _failure(reason: str, said: str, state: Mapping[str, Any]) -> CodeFailure:
    line = excerpts.excerpt(next(filter(None, map(str.strip, reversed(said.splitlines()))), ""), LONGEST)
    return CodeFailure(reason, sys.intern(line or SAYS_NOTHING), timestamps.seconds_or_none(state.get("finishedAt")))


def _ended_states(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield why the container does not run: its last end, the reason for which it waits, or an earlier end."""
    entries = (entry for entry in status.get("initContainerStatuses") or () if entry.get("name") == CONTAINER)
    for entry in entries:
        state, before = entry.get("state") or {}, entry.get("lastState") or {}
        if "running" not in state:
            states = (state.get("terminated"), state.get("waiting"), before.get("terminated"))
            yield from (each for each in states if each)
