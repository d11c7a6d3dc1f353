"""`torchq restore`: TenantQueues and TorchJobs from a backup, without running a finished job again.

One rule: the command never changes what it did not create.
"""

from datetime import UTC, datetime

import click

from coordinator.cli import api_client
from coordinator.cli.backup import restore_requests as restoring
from coordinator.cli.backup.restore_requests import CodeMissing, RestoreOptions
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.session import Session, pass_session
from coordinator.rbac.permissions import RESTORE
from crds import labels


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--dry-run", is_flag=True, help="validate only, create nothing")
@click.option("--skip-refused", is_flag=True, help="restore the others if the API server refuses some objects")
@pass_session
def restore(session: Session, files: tuple[str, ...], dry_run: bool, skip_refused: bool) -> None:
    """Restore queues and jobs from a backup. FILE is the output of `kubectl get
    tenantqueues,torchjobs,modelversions -A -o json`, or of `-o yaml`; `-` is standard input. Another FILE has the code
    of `torchq run` jobs, the output of `kubectl get configmaps -A -l train.distributed.io/code -o json`.

    A finished job gets its old status and does not run again. Any other job waits in its queue again, or stays
    suspended. A job whose code is missing is named and not restored, and the exit code is 1. Objects that exist are
    left as they are. A command that failed or was killed can be repeated, and goes on where it ended.
    """
    session = session.with_role(RESTORE)
    backup = restoring.read(files)
    options = RestoreOptions(now=datetime.now(UTC), dry_run=dry_run, skip_refused=skip_refused)
    done = restoring.restore(session.cluster, backup, options, click.echo)
    for queue, count in restoring.unknown_queues(session.cluster, backup).items():
        click.echo(f"note: there is no TenantQueue {queue}; waiting jobs that name it: {count}", err=True)
    if backup.requests:
        click.echo(
            f"note: scale requests that are not restored: {backup.requests}",
            err=True,
        )
    if backup.config_maps:
        click.echo(f"note: ConfigMaps without code of jobs, which are not restored: {backup.config_maps}", err=True)
    click.echo(_leading(session), err=True, nl=False)
    count = sum(done[action] for action in ("create", "finish", "resume", "release"))
    ending = "valid" if dry_run else "restored"
    rest = f"{done['keep']} left as they are, {done['skip']} skipped" + ("; nothing changed (dry run)" * dry_run)
    click.echo(f"{count} {ending} on {session.cluster_name}, {rest}", err=True)
    if done["lack"]:
        raise CodeMissing(
            f"jobs whose code is missing, named above: {done['lack']}. The old cluster has it in ConfigMaps (kubectl "
            f"get configmaps -A -l {labels.CODE} -o json > code.json): restore both files, or run these jobs anew"
        )


def _leading(session: Session) -> str:
    """Return a note if no coordinator can lead on its Redis, or if nobody answers that; else an empty text."""
    try:
        answer = api_client.find(session).status()
    except USER_ERRORS as error:
        return (
            "note: nobody says whether a coordinator can lead on its Redis; it may belong to the cluster before "
            f"(`torchq redis adopt` tells): {error}\n"
        )
    problem = answer.get("redis") or (answer.get("failing", "") if not answer.get("leader") else "")
    return f"note: no coordinator can lead, and nothing is admitted: {problem}\n" if problem else ""
