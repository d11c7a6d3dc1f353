"""`torchq doctor`: checks that cluster, queues and RQ agree.

One rule: the check changes nothing; only the leader repairs, at a request through the API server.
"""

import sys
import time
from collections import Counter
from dataclasses import asdict

import click

from coordinator.cli import api_client, output
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.session import Session, pass_session
from coordinator.doctor import state_checks
from coordinator.doctor.collect import Collector
from coordinator.doctor.findings import NOT_REPAIRABLE, WITHOUT_LEADER, Finding, notes
from coordinator.errors import CoordinatorError
from coordinator.leader import rebuild_request
from coordinator.rbac.permissions import DOCTOR
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from queues.storage.redis_store import RedisStore

DISAGREE, UNCHECKED = 1, 2
"""The exit codes for a disagreement, and for a check that could not be made."""
SETTLE_SECONDS = 5.0
ATTEMPTS = 4
"""The most checks after a repair, until the workers have caught up."""
ROWS_PER_CODE = 20
"""The most rows of one code in the table; `-o` prints all."""


@click.command()
@click.option("--fix", is_flag=True, help="have the leader rebuild queues and work from the cluster")
@click.option(
    "--settle",
    default=SETTLE_SECONDS,
    show_default=True,
    type=click.FloatRange(0, 3600),
    help="seconds between the two checks; a difference that changes meanwhile was in flight",
)
@click.option(
    "--timeout",
    default=90.0,
    show_default=True,
    type=click.FloatRange(1, 3600),
    help="seconds to wait for the leader's repair",
)
@output.FORM
@pass_session
def doctor(session: Session, fix: bool, settle: float, timeout: float, form: str | None) -> None:
    """Check that cluster, queues and RQ agree.

    Exit code 0: they agree; 1: they disagree; 2: the check could not be made.
    """
    try:
        collector = _collector(session.with_user_agent("torchq-doctor").with_role(DOCTOR))
        findings = examine(collector, settle)
        remaining = _repair(collector, findings, settle, timeout) if fix else findings
        told = tuple(notes(collector.queues()))
    except USER_ERRORS as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(UNCHECKED)
    mended = tuple(finding for finding in findings if finding not in remaining)
    if mended and not form:
        counts = Counter(finding.code for finding in mended).items()
        click.echo(f"repaired on {session.cluster_name}: {', '.join(f'{count} {code}' for code, count in counts)}")
    _print(remaining, mended, told, form)
    for note in () if form else told:
        click.echo(f"note: {note}", err=True)
    sys.exit(DISAGREE if any(not finding.is_harmless for finding in remaining) else 0)


def _collector(session: Session) -> Collector:
    _require_redis(session)
    redis = connection.connect(session.redis, client_name="torchq-doctor")
    return Collector(session.cluster, RedisStore(redis), RedisWork(redis), session.settings.lease_namespace)


def _require_redis(session: Session) -> None:
    """Raise CoordinatorError if the coordinators run in pods and nothing names their Redis, which is not here."""
    is_default = session.resolved_settings.sources["redis_url"] == "default"
    is_named = not is_default or session.redis is not session.settings.redis
    service = None if is_named else api_client.announced_service(session)
    if service is not None:
        raise CoordinatorError(
            "doctor reads Redis itself, and nothing names it here; run doctor where the coordinators run:\n"
            f"  kubectl -n {service.namespace} exec deployment/{service.name} -- torchq doctor\n"
            "or name a Redis that this machine reaches: TORCHQ_REDIS_URL, or --redis-url-file before `doctor`"
        )


def examine(collector: Collector, settle: float) -> tuple[Finding, ...]:
    """Return the findings that two checks, some seconds apart, have in common. A first check without findings is
    enough."""
    inspection = collector.collect()
    first = state_checks.compare(inspection)
    if not first:
        return ()
    lease = inspection.cluster.lease
    is_silent = any(finding.code == "lease-silent" for finding in first)
    silent = lease.seconds + 1.0 if lease is not None and is_silent else 0.0
    time.sleep(max(settle, silent))
    return state_checks.confirm(first, state_checks.compare(collector.collect()))


def _repair(collector: Collector, findings: tuple[Finding, ...], settle: float, timeout: float) -> tuple[Finding, ...]:
    """Have the leader repair the findings, and return those that remain. The check is repeated a few times, because the
    workers have to reconcile every job after a repair."""
    if all(finding.code in NOT_REPAIRABLE for finding in findings):
        return findings
    try:
        if leaderless := [finding.message for finding in findings if finding.code in WITHOUT_LEADER]:
            raise rebuild_request.RebuildNotDone(
                f"nothing can be repaired, since {leaderless[0]}: start a coordinator (torchq coordinator)"
            )
        collector.repair(timeout)
    except rebuild_request.RebuildNotDone as error:
        click.echo(f"Error: {error}", err=True)
        return findings
    for _ in range(ATTEMPTS):
        findings = examine(collector, settle)
        if not findings:
            break
    return findings


def _print(findings: tuple[Finding, ...], mended: tuple[Finding, ...], told: tuple[str, ...], form: str | None) -> None:
    if form:
        document = {"agree": not findings, "disagreements": _rows(findings), "mended": _rows(mended), "notes": [*told]}
        output.print_document(document, form)
        return
    if not findings:
        click.echo("cluster, queues and RQ agree")
        return
    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding)
    shown = [finding for found in by_code.values() for finding in found[:ROWS_PER_CODE]]
    rows = [(finding.code, finding.subject, finding.message) for finding in shown]
    click.echo(output.columns(("CODE", "SUBJECT", "WHAT"), rows) + "\n")
    for code, found in by_code.items():
        more = f" ({len(found) - ROWS_PER_CODE} more, see -o json)" if len(found) > ROWS_PER_CODE else ""
        click.echo(f"{code}{more}: {'harmless; ' if found[0].is_harmless else ''}{found[0].remedy}")


def _rows(findings: tuple[Finding, ...]) -> list[dict[str, object]]:
    return [asdict(each) | {"mends": each.remedy, "harmless": each.is_harmless} for each in findings]
