"""Queue and run distributed PyTorch training from Python: `torchq.run(["python", "train.py"], nodes=4, gpus=1)`.

One rule: standard library only; everything else is the program `torchq`, to which this package speaks.
"""

from __future__ import annotations

from torchq._errors import (
    AlreadyExists,
    Disconnected,
    Failed,
    Forbidden,
    Invalid,
    NoCluster,
    NoProgram,
    NotFound,
    Refused,
    TimedOut,
    TorchqError,
    Unauthorized,
    Unavailable,
    VersionMismatch,
)
from torchq._functions.remote import RemoteFunction, remote
from torchq._sync_calls import Client, Job
from torchq._training.models import model
from torchq._training.outputs import output
from torchq._training.reports import report
from torchq._training.results import result
from torchq._values import Ending, LogLine, Role
from torchq._version import VERSION

__version__ = VERSION

_client = Client()

run = _client.run
dry_run = _client.dry_run
submit = _client.submit
job = _client.job
jobs = _client.jobs
wait = _client.wait
as_completed = _client.as_completed
cancel = _client.cancel
delete = _client.delete
suspend = _client.suspend
hold = _client.hold
queues = _client.queues
queue = _client.queue
next_picks = _client.next_picks
status = _client.status
command = _client.command
close = _client.close

__all__ = [
    "AlreadyExists",
    "Client",
    "Disconnected",
    "Ending",
    "Failed",
    "Forbidden",
    "Invalid",
    "Job",
    "LogLine",
    "NoCluster",
    "NoProgram",
    "NotFound",
    "Refused",
    "RemoteFunction",
    "Role",
    "TimedOut",
    "TorchqError",
    "Unauthorized",
    "Unavailable",
    "VersionMismatch",
    "as_completed",
    "cancel",
    "close",
    "command",
    "delete",
    "dry_run",
    "hold",
    "job",
    "jobs",
    "model",
    "next_picks",
    "output",
    "queue",
    "queues",
    "remote",
    "report",
    "result",
    "run",
    "status",
    "submit",
    "suspend",
    "wait",
]
