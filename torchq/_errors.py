"""The errors of this package.

    TorchqError
    ├── NoProgram         no program `torchq` is installed, or it does not start
    ├── VersionMismatch   program and package do not understand each other; the message says what to install
    ├── Disconnected      `torchq rpc` ended in the middle of a call; whether the call took effect is not known
    ├── NoCluster         no cluster is configured, or it does not answer
    ├── Unauthorized      the cluster does not accept the credentials, as an expired token
    ├── Forbidden         the account lacks a permission; the message names it
    ├── NotFound          there is no such job or queue
    ├── Unavailable       a server failed or is overloaded: try again
    ├── Refused           the cluster or torchq refuses the call, in its own words
    │   ├── Invalid       a value is wrong; the message names the field (also a ValueError)
    │   └── AlreadyExists an object of that name exists
    ├── Failed            the job did not succeed; `outcome` is Failed, Cancelled or Deleted
    └── TimedOut          the time that the caller gave is over (also a TimeoutError); the job goes on

One rule: the message says what failed and what to do; `kind` of an answer of `torchq rpc` selects the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TorchqError(Exception):
    """The base of all errors of this package."""


class NoProgram(TorchqError):
    """There is no program `torchq` to speak to."""


class VersionMismatch(TorchqError):
    """This package and the program `torchq` do not understand each other."""


class Disconnected(TorchqError):
    """The process `torchq rpc` ended in the middle of a call."""


class NoCluster(TorchqError):
    """There is no cluster to speak to."""


class Unauthorized(TorchqError):
    """The cluster does not accept the credentials."""


class Forbidden(TorchqError):
    """The account lacks a permission."""


class NotFound(TorchqError):
    """There is no such object."""


class Unavailable(TorchqError):
    """A server failed or is overloaded."""


class Refused(TorchqError):
    """The cluster or torchq refuses the call."""


class Invalid(Refused, ValueError):
    """A value is wrong."""


class AlreadyExists(Refused):
    """An object of that name exists."""


class Failed(TorchqError):
    """The job did not succeed."""

    def __init__(self, message: str, outcome: str = "Failed", reason: str = "", exit_code: int | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.reason = reason
        """Why, in one word: PodFailed, BackoffLimitExceeded, DeadlineExceeded, Cancelled, ..."""
        self.exit_code = exit_code
        """The exit code of the pod that failed; None if it has none, or if no pod is the reason."""


class TimedOut(TorchqError, TimeoutError):
    """The time that the caller gave is over."""


KINDS: Mapping[str, type[TorchqError]] = {
    kind.__name__: kind
    for kind in (
        VersionMismatch,
        NoCluster,
        Unauthorized,
        Forbidden,
        NotFound,
        Unavailable,
        Refused,
        Invalid,
        AlreadyExists,
        Failed,
        TimedOut,
    )
}
"""The classes by the `kind` that an answer of `torchq rpc` has. Any other kind is a TorchqError."""


def from_answer(error: Mapping[str, Any]) -> TorchqError:
    """Return the exception of an error that `torchq rpc` answered."""
    data = error.get("data") or {}
    message = str(error.get("message") or "torchq rpc gave no reason")
    kind = KINDS.get(str(data.get("kind") or ""), TorchqError)
    if kind is Failed:
        return Failed(
            message, str(data.get("outcome") or "Failed"), str(data.get("reason") or ""), data.get("exitCode")
        )
    return kind(message)
