"""Version 1: the first tables of the history.

What stands in `history.sql.tables`, too, is written again here: that module changes, and a migration never does.
"""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger()
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    _make_jobs()
    for name in ("holds", "hidden_holds"):
        _make_holds(name)
    op.create_index("holds_by_time", "holds", ["until", "start", "party", "charge"])
    op.create_index("holds_by_queue", "holds", ["queue", "start", "until"])
    merged = sa.text("charge IS NULL")
    op.create_index("merged_holds", "holds", ["until"], sqlite_where=merged, postgresql_where=merged)
    _make_waits_and_pods()
    op.create_table(
        "queues", _key("name", _TEXT), _key("start"), _number("version"), _number("weight"), sqlite_with_rowid=False
    )
    op.create_table("pools", _key("start"), _text("amounts"))
    op.create_table("gaps", _key("start"), _number("until"))
    op.create_table("parties", *_dictionary(), _text("queue"), _text("namespace"), _text("username"))
    op.create_table("charges", *_dictionary(), _text("amounts"))
    facts = op.create_table("facts", _key("name", _TEXT), _text("value"))
    op.bulk_insert(facts, [{"name": "oldest", "value": "1"}])


def _make_jobs() -> None:
    op.create_table(
        "jobs",
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
        sa.Column("approximate", sa.Boolean(), nullable=False),
        _text("reason"),
        _text("message"),
        _number("restarts", "0"),
        _number("disruptions", "0"),
        _text("result"),
        _number("seen", "0"),
    )
    op.create_index("jobs_by_creation", "jobs", ["created", "uid"])
    op.create_index("jobs_by_namespace", "jobs", ["namespace", "created", "uid"])
    op.create_index("jobs_by_name", "jobs", ["name"])
    op.create_index("jobs_by_end", "jobs", ["until"])
    failed = sa.text("outcome = 'Failed'")
    op.create_index("failed_jobs", "jobs", ["uid"], sqlite_where=failed, postgresql_where=failed)


def _make_holds(name: str) -> None:
    op.create_table(
        name,
        _key("uid", _TEXT),
        _key("number"),
        _key("numbers", _TEXT),
        _number("version"),
        _known(),
        _text("queue"),
        _number("attempt"),
        sa.Column("workers", sa.BigInteger()),
        _number("start"),
        sa.Column("running", sa.BigInteger()),
        _number("until"),
        _text("ended"),
        sa.Column("sums", _TEXT),
        _number("others", "0"),
        sa.Column("approximate", sa.Boolean(), nullable=False),
        sa.Column("party", sa.BigInteger()),
        sa.Column("charge", sa.BigInteger()),
        sqlite_with_rowid=False,
    )


def _make_waits_and_pods() -> None:
    op.create_table(
        "waits",
        _key("uid", _TEXT),
        _key("start"),
        _number("version"),
        _known(),
        _text("queue"),
        _number("until"),
        _number("over", str(2**62)),
        sqlite_with_rowid=False,
    )
    lasts = sa.text("over > start")
    op.create_index("waits_by_queue", "waits", ["queue", "start", "over"], sqlite_where=lasts, postgresql_where=lasts)
    op.create_table(
        "pods",
        _key("uid", _TEXT),
        _number("version"),
        _known(),
        _text("job"),
        _text("namespace"),
        _text("queue"),
        _number("start"),
        _number("until"),
        sa.Column("approximate", sa.Boolean(), nullable=False),
        sa.Column("party", sa.BigInteger()),
        sa.Column("charge", sa.BigInteger()),
        sqlite_with_rowid=False,
    )
    op.create_index("pods_by_time", "pods", ["until", "start", "party", "charge"])
    op.create_index("pods_by_job", "pods", ["job"])


def _dictionary() -> tuple[sa.Column[int], sa.Column[bytes]]:
    return (
        sa.Column("id", _ID, primary_key=True),
        sa.Column("digest", sa.LargeBinary(16), nullable=False, unique=True),
    )


def _key(name: str, kind: sa.Text | sa.BigInteger = _NUMBER) -> sa.Column[object]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, _TEXT, nullable=False, server_default="")


def _number(name: str, default: str | None = None) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default=default)


def _known() -> sa.Column[int]:
    return sa.Column("known", sa.SmallInteger(), nullable=False)
