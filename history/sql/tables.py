"""The tables of the history, the same in SQLite and in PostgreSQL.

One rule: a change of a table is a migration (`history.sql.migrations`), which only adds.

    jobs, holds, waits, pods, queues, pools, gaps   the rows of `history.rows`, by their keys
    hidden_holds   the holds in a row of several holds of which another one is missing (`history.merged_holds`)
    parties        queue, namespace and user: what sums are kept apart by
    charges        amounts, each combination once: the database adds seconds by charge, and Python multiplies, since
                   amount x seconds may pass the integers of a database
    facts          the cluster, up to when everything is recorded, and which versions may write

An end that has not come yet is OPEN, so that one comparison serves open and closed rows. `known` is what is known of an
end (`history.precedence`).
"""

from collections.abc import Mapping

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    literal_column,
)

OPEN = 2**62
"""The end of what has no end yet."""
VERSION_TABLE = "torchq_history_version"
"""The table in which Alembic keeps the version of the tables; its presence says that a database is ours."""

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
"""Text in the order of its characters' numbers, as in Python, whatever the language of the database."""
_ID = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData()


def _key(name: str, kind: type[BigInteger] | Text = BigInteger) -> Column[object]:
    return Column(name, kind if isinstance(kind, Text) else kind(), primary_key=True, autoincrement=False)


def _text(name: str) -> Column[str]:
    return Column(name, _TEXT, nullable=False, server_default="")


def _number(name: str, default: str | None = None) -> Column[int]:
    return Column(name, BigInteger(), nullable=False, server_default=default)


def _known() -> Column[int]:
    return Column("known", SmallInteger(), nullable=False)


def _approximate() -> Column[bool]:
    return Column("approximate", Boolean(), nullable=False)


jobs = Table(
    "jobs",
    metadata,
    _key("uid", _TEXT),
    _number("version"),
    _known(),
    _text("namespace"),
    _text("name"),
    _text("queue"),
    _text("username"),
    _number("created"),
    _number("until"),
    _text("outcome"),
    _approximate(),
    _text("reason"),
    _text("message"),
    _number("restarts", "0"),
    _number("disruptions", "0"),
    _text("result"),
    _number("seen", "0"),
)
FAILED: ColumnElement[str] = literal_column("'Failed'")
"""No parameter: a partial index serves only statements that name its condition."""
Index("jobs_by_creation", jobs.c.created, jobs.c.uid)
Index("jobs_by_namespace", jobs.c.namespace, jobs.c.created, jobs.c.uid)
Index("jobs_by_name", jobs.c.name)
Index("jobs_by_end", jobs.c.until)
Index("failed_jobs", jobs.c.uid, sqlite_where=jobs.c.outcome == FAILED, postgresql_where=jobs.c.outcome == FAILED)


def _holds(name: str) -> Table:
    return Table(
        name,
        metadata,
        _key("uid", _TEXT),
        _key("number"),
        _key("numbers", _TEXT),
        _number("version"),
        _known(),
        _text("queue"),
        _number("attempt"),
        Column("workers", BigInteger()),
        _number("start"),
        Column("running", BigInteger()),
        _number("until"),
        _text("ended"),
        Column("sums", _TEXT),
        _number("others", "0"),
        _approximate(),
        # Of a hold that came before its job: none.
        Column("party", BigInteger()),
        # Of several holds together: none.
        Column("charge", BigInteger()),
        sqlite_with_rowid=False,
    )


holds = _holds("holds")
Index("holds_by_time", holds.c.until, holds.c.start, holds.c.party, holds.c.charge)
Index("holds_by_queue", holds.c.queue, holds.c.start, holds.c.until)
Index("merged_holds", holds.c.until, sqlite_where=holds.c.charge.is_(None), postgresql_where=holds.c.charge.is_(None))
hidden_holds = _holds("hidden_holds")

waits = Table(
    "waits",
    metadata,
    _key("uid", _TEXT),
    _key("start"),
    _number("version"),
    _known(),
    _text("queue"),
    _number("until"),
    # The end of the wait, which is at the latest when the next one begins or the job ends.
    _number("over", str(OPEN)),
    sqlite_with_rowid=False,
)
HAS_TIME = waits.c.over > waits.c.start
"""The condition of waits that last: half of the rows say only since when a job does not wait."""
Index("waits_by_queue", waits.c.queue, waits.c.start, waits.c.over, sqlite_where=HAS_TIME, postgresql_where=HAS_TIME)

pods = Table(
    "pods",
    metadata,
    _key("uid", _TEXT),
    _number("version"),
    _known(),
    _text("job"),
    _text("namespace"),
    _text("queue"),
    _number("start"),
    _number("until"),
    _approximate(),
    Column("party", BigInteger()),
    Column("charge", BigInteger()),
    sqlite_with_rowid=False,
)
Index("pods_by_time", pods.c.until, pods.c.start, pods.c.party, pods.c.charge)
Index("pods_by_job", pods.c.job)

queues = Table(
    "queues",
    metadata,
    _key("name", _TEXT),
    _key("start"),
    _number("version"),
    _number("weight"),
    sqlite_with_rowid=False,
)
pools = Table("pools", metadata, _key("start"), _text("amounts"))
gaps = Table("gaps", metadata, _key("start"), _number("until"))

parties = Table(
    "parties",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    _text("queue"),
    _text("namespace"),
    _text("username"),
)
charges = Table(
    "charges",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    _text("amounts"),
)

facts = Table("facts", metadata, _key("name", _TEXT), _text("value"))

KEYS: Mapping[str, tuple[str, ...]] = {
    name: tuple(column.name for column in table.primary_key) for name, table in metadata.tables.items()
}
