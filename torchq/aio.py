"""The same calls as those of `torchq`, for asyncio: `await torchq.aio.run(...)`.

One rule: each line is the line of `torchq` with `await` before it, or `async for` instead of `for`.
"""

from __future__ import annotations

from torchq._async_calls import Client, Job

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
    "Client",
    "Job",
    "as_completed",
    "cancel",
    "close",
    "command",
    "delete",
    "dry_run",
    "hold",
    "job",
    "jobs",
    "next_picks",
    "queue",
    "queues",
    "run",
    "status",
    "submit",
    "suspend",
    "wait",
]
