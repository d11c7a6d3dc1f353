"""`torchq doctor`: do cluster, queues and RQ agree?

One rule: looking changes nothing; mending is asked of the leader, through the API server.
"""

import sys
import time
from collections import Counter

import click

from coordinator.cli import output
from coordinator.cli.session import SHOWN, Session, pass_session
from coordinator.doctor import checks as rules
from coordinator.doctor.collect import Looker
from coordinator.doctor.findings import LEADERLESS, NOT_MENDED, Disagreement
from coordinator.leader import rebuild_request
from coordinator.rbac.permissions import DOCTOR
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from queues.storage.redis_store import RedisStore

DISAGREE, BLIND = 1, 2
"""Exit codes: something disagrees; it could not look."""
SETTLE_SECONDS = 5.0
ATTEMPTS = 4
"""How often it looks again after a repair, until the workers have caught up."""
SHOWN_PER_CODE = 20
"""Rows of one kind in the table; -o shows all."""


@click.command()
@click.option("--fix", is_flag=True, help="have the leader mend it: queues and work are built anew from the cluster")
@click.option(
    "--settle",
    default=SETTLE_SECONDS,
    show_default=True,
    type=click.FloatRange(0, 3600),
    help="seconds between the two looks; what changes meanwhile was in flight",
)
@click.option(
    "--timeout",
    default=90.0,
    show_default=True,
    type=click.FloatRange(1, 3600),
    help="seconds to wait for the leader's repair",
)
@click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print for programs")
@pass_session
def doctor(session: Session, fix: bool, settle: float, timeout: float, form: str | None) -> None:
    """Compare cluster, queues and RQ; exit code 0: they agree, 1: they do not, 2: it could not look."""
    try:
        looker = _looker(session.introduced("torchq-doctor").acting_as(DOCTOR))
        found = examine(looker, settle)
        left = _mended(looker, found, settle, timeout) if fix else found
    except SHOWN as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(BLIND)
    mended = tuple(each for each in found if each not in left)
    if mended and not form:
        click.echo(f"mended on {session.cluster_word}: {_counted(mended)}")
    _show(left, mended, form)
    sys.exit(DISAGREE if any(not each.harmless for each in left) else 0)


def _looker(session: Session) -> Looker:
    redis = connection.connect(session.redis_url, client_name="torchq-doctor")
    return Looker(session.cluster, RedisStore(redis), RedisWork(redis), session.settings.lease_namespace)


def examine(looker: Looker, settle: float) -> tuple[Disagreement, ...]:
    """What two looks, a while apart, have in common. One is enough if it finds nothing."""
    look = looker.look()
    first = rules.compare(look)
    if not first:
        return ()
    silent = look.cluster.lease.seconds + 1.0 if look.cluster.lease and _has(first, "lease-silent") else 0.0
    time.sleep(max(settle, silent))
    return rules.confirmed(first, rules.compare(looker.look()))


def _mended(looker: Looker, found: tuple[Disagreement, ...], settle: float, timeout: float) -> tuple[Disagreement, ...]:
    """What is left after a repair; the workers have yet to look at every job then, so it may take a few looks."""
    if all(each.code in NOT_MENDED for each in found):
        return found
    try:
        if leaderless := [each.message for each in found if each.code in LEADERLESS]:
            raise rebuild_request.NoRepair(
                f"nobody can mend anything, {leaderless[0]}: start a coordinator (torchq coordinator)"
            )
        looker.repair(timeout)
    except rebuild_request.NoRepair as error:
        click.echo(f"Error: {error}", err=True)
        return found
    for _ in range(ATTEMPTS):
        found = examine(looker, settle)
        if not found:
            break
    return found


def _has(found: tuple[Disagreement, ...], code: str) -> bool:
    return any(each.code == code for each in found)


def _show(found: tuple[Disagreement, ...], mended: tuple[Disagreement, ...], form: str | None) -> None:
    if form:
        output.show({"agree": not found, "disagreements": _rows(found), "mended": _rows(mended)}, form)
        return
    if not found:
        click.echo("cluster, queues and RQ agree")
        return
    shown = [each for code in _codes(found) for each in _of(found, code)[:SHOWN_PER_CODE]]
    click.echo(output.columns(("CODE", "SUBJECT", "WHAT"), [(each.code, each.subject, each.message) for each in shown]))
    click.echo()
    for code in _codes(found):
        kind = _of(found, code)
        more = f" ({len(kind) - SHOWN_PER_CODE} more of them)" if len(kind) > SHOWN_PER_CODE else ""
        click.echo(f"{code}{more}: {'harmless; ' if kind[0].harmless else ''}{kind[0].mends}")


def _rows(found: tuple[Disagreement, ...]) -> list[dict[str, object]]:
    return [
        {
            "code": each.code,
            "subject": each.subject,
            "message": each.message,
            "mends": each.mends,
            "harmless": each.harmless,
        }
        for each in found
    ]


def _codes(found: tuple[Disagreement, ...]) -> list[str]:
    return list(dict.fromkeys(each.code for each in found))


def _of(found: tuple[Disagreement, ...], code: str) -> list[Disagreement]:
    return [each for each in found if each.code == code]


def _counted(found: tuple[Disagreement, ...]) -> str:
    return ", ".join(f"{count} {code}" for code, count in Counter(each.code for each in found).items())
