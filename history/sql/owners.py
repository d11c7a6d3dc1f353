"""Whose holds and pods they are: the namespace and the user of their job, which sums are kept apart by.

One rule: holds and pods name their party themselves, so that sums need no job. Where the job comes later than they, or
another user is named, they follow.
"""

from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import Connection, bindparam, select, update

from history.sql import statements
from history.sql.dictionaries import party_ids
from history.sql.tables import holds, jobs, pods
from history.store import GroupKey

Owners = Mapping[str, tuple[str, str]]
"""The namespace and the user, by the uid of a job."""


def read(connection: Connection, uids: Iterable[str]) -> Owners:
    """Return the owners of the jobs that are known."""
    found: dict[str, tuple[str, str]] = {}
    for some in statements.chunks(dict.fromkeys(uids)):
        condition = statements.among(connection, jobs.c.uid, some)
        rows = connection.execute(select(jobs.c.uid, jobs.c.namespace, jobs.c.username).where(condition))
        found |= {uid: (namespace, user) for uid, namespace, user in rows}
    return found


def follow(connection: Connection, uids: Collection[str]) -> None:
    """Give the holds and pods that jobs have already the party of these jobs."""
    for some in statements.chunks(uids):
        own = None
        for table, column in ((holds, holds.c.uid), (pods, pods.c.job)):
            condition = statements.among(connection, column, some)
            pairs = connection.execute(select(column, table.c.queue).where(condition).distinct()).all()
            if not pairs:
                continue
            own = own or read(connection, some)
            keys = {(uid, queue): GroupKey(queue, *own[uid]) for uid, queue in pairs}
            parties = party_ids(connection, keys.values())
            connection.execute(
                update(table)
                .where(column == bindparam("of_uid"), table.c.queue == bindparam("of_queue"))
                .values(party=bindparam("new")),
                [{"of_uid": uid, "of_queue": queue, "new": parties[key]} for (uid, queue), key in keys.items()],
            )
