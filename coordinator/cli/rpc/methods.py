"""The method of each call in the table `torchq._calls`.

One rule: a method gets the cluster, checked parameters and its open call, and returns JSON; that of a stream yields it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from coordinator.cli.rpc import job_changes, job_reads, output_files, queue_reads, streams, submissions, waits
from coordinator.cli.rpc.cluster_access import ClusterAccess
from coordinator.cli.rpc.open_call import OpenCall

Method = Callable[[ClusterAccess, Mapping[str, Any], OpenCall], Any]

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "run": submissions.run,
        "dry_run": submissions.dry_run,
        "submit": submissions.submit,
        "job": job_reads.find,
        "jobs": job_reads.list_jobs,
        "wait": waits.wait,
        "as_completed": waits.as_completed,
        "queues": queue_reads.queues,
        "queue": queue_reads.queue,
        "next_picks": queue_reads.next_picks,
        "status": queue_reads.status,
        "command": queue_reads.command,
        "job.phase": job_reads.phase,
        "job.why": job_reads.why,
        "job.position": job_reads.position,
        "job.pods": job_reads.pods,
        "job.details": job_reads.details,
        "job.logs": streams.logs,
        "job.reports": streams.reports,
        "job.wait": waits.wait_for_one,
        "job.result": waits.result,
        "job.outputs": output_files.outputs,
        "job.download": output_files.download,
        "job.suspend": job_changes.change("suspend"),
        "job.resume": job_changes.change("resume"),
        "job.restart": job_changes.restart,
        "job.cancel": job_changes.change("cancel"),
        "job.delete": job_changes.change("delete"),
        "job.hold": job_changes.change("hold"),
        "job.bump": job_changes.change("bump"),
        "job.move": job_changes.move,
        "job.scale": job_changes.scale,
    }
)
