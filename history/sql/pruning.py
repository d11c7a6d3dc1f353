"""How rows that are too old are deleted.

One rule: a transaction is small, so that a recorder that writes meanwhile waits for a moment only.
"""

from sqlalchemy import Connection, and_, delete, exists, or_, select

from history.sql import dictionaries
from history.sql.database import Database
from history.sql.statements import among, chunks
from history.sql.tables import gaps, hidden_holds, holds, jobs, pods, pools, queues, waits


def prune(database: Database, before: int, limit: int) -> int:
    """Delete at most `limit` jobs that ended before a time, and return how many there were. Then delete the other rows
    that no later time needs."""
    with database.writing() as connection:
        count = _prune_jobs(connection, before, limit)
    while _prune_pods(database, before, limit) == limit:
        pass
    with database.writing() as connection:
        _prune_states(connection, before)
        if count and count < limit:
            dictionaries.forget_unused(connection)
    return count


def _prune_jobs(connection: Connection, before: int, limit: int) -> int:
    goes_on = exists().where(pods.c.job == jobs.c.uid, pods.c.until >= before)
    old = select(jobs.c.uid).where(jobs.c.until < before, ~goes_on).order_by(jobs.c.until, jobs.c.uid).limit(limit)
    uids = connection.scalars(old).all()
    for some in chunks(uids):
        for table in (holds, hidden_holds, waits, jobs):
            connection.execute(delete(table).where(among(connection, table.c.uid, some)))
    return len(uids)


def _prune_pods(database: Database, before: int, limit: int) -> int:
    """Delete pods by their own end. One that goes on after its job has ended is charged until then, and keeps its job
    here."""
    with database.writing() as connection:
        uids = connection.scalars(select(pods.c.uid).where(pods.c.until < before).limit(limit)).all()
        for some in chunks(uids):
            connection.execute(delete(pods).where(among(connection, pods.c.uid, some)))
    return len(uids)


def _prune_states(connection: Connection, before: int) -> None:
    """Delete weights and pools that others had followed by then, weights of deleted queues, and gaps."""
    later_weight, later_pool = queues.alias(), pools.alias()
    has_other_weight = exists().where(
        later_weight.c.name == queues.c.name, later_weight.c.start > queues.c.start, later_weight.c.start <= before
    )
    connection.execute(delete(queues).where(queues.c.start <= before, or_(queues.c.weight == 0, has_other_weight)))
    has_other_pool = exists().where(later_pool.c.start > pools.c.start, later_pool.c.start <= before)
    connection.execute(delete(pools).where(and_(pools.c.start <= before, has_other_pool)))
    connection.execute(delete(gaps).where(gaps.c.until < before))
