"""Whether the tables in a database are those of this version, and whose history they have.

One rule: a migration only adds, so a version writes into newer tables, too, as long as the fact `oldest` lets it. A
migration raises `oldest` where an older version would write something wrong.
"""

from sqlalchemy import Connection, column, inspect, select, table

from history.errors import ForeignHistory, WrongSchema
from history.sql import statements
from history.sql.tables import VERSION_TABLE, facts

SCHEMA = 1
"""The version of the tables that this version reads and writes: the newest of history/sql/migrations/versions."""
CLUSTER, OLDEST, RECORDED_UNTIL = "cluster", "oldest", "recorded_until"


def found(connection: Connection, name: str) -> int:
    """Return the version of the tables; 0 if there are none. Raise WrongSchema if the tables are of another
    program."""
    tables = inspect(connection).get_table_names()
    if VERSION_TABLE not in tables:
        if tables:
            raise WrongSchema(f"{name} belongs to another program: it has the table {min(tables)}. Name another one")
        return 0
    versions = table(VERSION_TABLE, column("version_num"))
    version = connection.scalar(select(versions.c.version_num))
    return int(version) if version and version.isdecimal() else 0


def check(connection: Connection, name: str) -> None:
    """Raise WrongSchema if this version cannot use the tables."""
    version = found(connection, name)
    if version < SCHEMA:
        raise WrongSchema(f"{name} has {_tables(version)} and this version needs {SCHEMA}: torchq history migrate")
    check_newer(connection, name, version)


def check_newer(connection: Connection, name: str, version: int) -> None:
    """Raise WrongSchema if a newer version has changed the tables so that this one would do harm."""
    oldest = int(read_fact(connection, OLDEST) or 0) if version > SCHEMA else 0
    if oldest > SCHEMA:
        raise WrongSchema(f"{name} has {_tables(version)} of a newer torchq, and this version knows {SCHEMA}: upgrade")


def claim(connection: Connection, name: str, cluster: str) -> None:
    """Note the cluster of a history, by the uid of its namespace kube-system. Raise ForeignHistory if the history is
    that of another cluster."""
    check_cluster(connection, name, cluster)
    if cluster and not read_fact(connection, CLUSTER):
        write_fact(connection, CLUSTER, cluster)


def check_cluster(connection: Connection, name: str, cluster: str) -> None:
    """Raise ForeignHistory if the history is that of another cluster."""
    known = read_fact(connection, CLUSTER)
    if cluster and known and known != cluster:
        raise ForeignHistory(
            f"{name} is that of another cluster (its kube-system has the uid {known}, here it is {cluster}): name an "
            "own database"
        )


def read_fact(connection: Connection, name: str) -> str:
    """Return a fact; empty if there is none."""
    return connection.scalar(select(facts.c.value).where(facts.c.name == name)) or ""


def write_fact(connection: Connection, name: str, value: str) -> None:
    """Write a fact."""
    statement = statements.insert(connection, facts)
    connection.execute(
        statement.on_conflict_do_update(index_elements=["name"], set_={"value": statement.excluded.value}),
        {"name": name, "value": value},
    )


def _tables(version: int) -> str:
    return f"tables of the version {version}" if version else "no tables"
