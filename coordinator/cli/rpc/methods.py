"""The method of each call in the table `torchq._calls`.

One rule: a method gets the cluster, checked parameters and its open call, and returns JSON; the method of a stream
yields JSON values.
"""

from collections.abc import Mapping
from types import MappingProxyType

from coordinator.cli.rpc import command_calls, followed_jobs, job_reads, output_files, submissions
from coordinator.cli.rpc.command_calls import Method

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "run": submissions.run,
        "dry_run": submissions.dry_run,
        "submit": submissions.submit,
        "job": job_reads.find,
        "jobs": job_reads.list_jobs,
        "wait": followed_jobs.wait,
        "as_completed": followed_jobs.as_completed,
        **{verb: command_calls.changes_all(verb) for verb in ("cancel", "delete", "suspend", "hold")},
        "queues": command_calls.queues,
        "queue": command_calls.reads("queue", "show", of="name"),
        "next_picks": command_calls.next_picks,
        "status": command_calls.reads("status", "--seconds=0"),
        "command": command_calls.command,
        "job.phase": job_reads.phase,
        "job.why": command_calls.reads("job", "why", of="job"),
        "job.position": command_calls.position,
        "job.pods": job_reads.pods,
        "job.details": command_calls.reads("job", "show", of="job"),
        "job.logs": followed_jobs.logs,
        "job.reports": followed_jobs.reports,
        "job.wait": followed_jobs.wait_for_one,
        "job.result": followed_jobs.result,
        "job.outputs": output_files.outputs,
        "job.download": output_files.download,
        "job.restart": command_calls.restart,
        "job.move": command_calls.move,
        "job.scale": command_calls.scale,
        **{
            f"job.{verb}": command_calls.changes(verb)
            for verb in ("suspend", "resume", "cancel", "delete", "hold", "bump")
        },
    }
)
