"""The stores that the tests of the history run over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from history.sql import tables
from history.sql.migrations.migrate import migrate
from history.sql.sql_history import open_history
from history.store import HistoryStore
from tests.doubles.memory_history import MemoryHistory
from tests.support import postgres_server
from tests.support.postgres_server import PostgresServer

POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.servers)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """Yield a server with the tables of the history in the database torchq."""
    with postgres_server.running(tmp_path_factory.getbasetemp()) as server:
        server.execute("CREATE DATABASE torchq")
        migrate(server.url("torchq"))
        yield server


@pytest.fixture(params=["sqlite", POSTGRESQL])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty history of a kind: sqlite or postgresql."""
    return url_of(request.param, request, tmp_path)


def url_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty history of a kind."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/history.sqlite"
    server: PostgresServer = request.getfixturevalue("postgres")
    names = ", ".join(table.name for table in tables.metadata.tables.values())
    server.execute(f"TRUNCATE {names}", "torchq")
    return server.url("torchq")


@pytest.fixture(params=["memory", "sqlite", POSTGRESQL])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HistoryStore]:
    """Yield an empty store of each kind."""
    if request.param == "memory":
        yield MemoryHistory()
        return
    opened = open_history(url_of(request.param, request, tmp_path), "cluster-1")
    yield opened
    opened.close()
