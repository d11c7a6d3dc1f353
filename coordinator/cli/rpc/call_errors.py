"""The errors of calls in the form of the protocol: a kind, which selects the class in Python, and the message for
people.

One rule: one table; the message is the same as that of the command.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

import click

from coordinator import terminal
from coordinator.cli import session
from coordinator.cli.manifest_files import BadManifest
from coordinator.code.errors import CodeTooLarge, FolderRefused
from coordinator.errors import CoordinatorError, LocalError, SettingsError
from coordinator.query.questions import UnknownObject
from coordinator.query.remote_queries import NoCoordinator
from coordinator.runs.errors import InvalidRun
from crds.errors import InvalidObject
from kube import errors
from queues.errors import QueueError
from torchq import _errors as client_errors

logger = logging.getLogger(__name__)

SERVER_ERROR = -32_000
UNKNOWN_METHOD = -32_601
KINDS: tuple[tuple[str, tuple[type[Exception], ...]], ...] = (
    ("NoCluster", (errors.Unreachable, errors.Misconfigured, LocalError)),
    ("Unauthorized", (errors.Unauthorized,)),
    ("Forbidden", (errors.Forbidden,)),
    ("NotFound", (errors.NotFound, UnknownObject)),
    ("AlreadyExists", (errors.AlreadyExists,)),
    ("Invalid", (errors.Invalid, InvalidObject, BadManifest, SettingsError, InvalidRun)),
    ("Invalid", (click.UsageError, FolderRefused, CodeTooLarge)),
    ("Refused", (errors.Conflict,)),
    ("Unavailable", (errors.ClusterError, NoCoordinator, QueueError)),
    ("Refused", (CoordinatorError, click.ClickException)),
)
"""The kinds with their errors; the first row that fits counts."""
RECONNECTING = ("NoCluster", "Unauthorized")
"""The kinds after which the next call reads the kubeconfig again."""


@dataclass(frozen=True, slots=True)
class CallError:
    """An error of a call."""

    kind: str
    message: str
    code: int = SERVER_ERROR
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The error in the form of the protocol."""
        return {"code": self.code, "message": terminal.clean(self.message), "data": {"kind": self.kind, **self.more}}


def error_of(error: Exception) -> CallError:
    """Return the call_error of an exception. An unexpected error is logged with its traceback."""
    if isinstance(error, client_errors.Failed):
        more = {"outcome": error.outcome, "reason": error.reason, "exitCode": error.exit_code}
        return CallError("Failed", str(error), more=more)
    if isinstance(error, client_errors.TorchqError):
        return CallError(type(error).__name__, str(error))
    for name, kinds in KINDS:
        if isinstance(error, kinds):
            text = error.format_message() if isinstance(error, click.ClickException) else session.format_error(error)
            return CallError(name, text)
    logger.error("a call failed", exc_info=error)
    return CallError("Bug", f"torchq rpc failed with {type(error).__name__}: {error}; its standard error has more")
