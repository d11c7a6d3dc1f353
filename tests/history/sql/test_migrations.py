"""The tables of the history: made, changed, and refused."""

import threading
from importlib import import_module
from pathlib import Path

import pytest
from alembic import autogenerate
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from history.errors import NotReachable, WrongSchema
from history.sql import migrations, schema
from history.sql.migrations.migrate import migrate
from history.sql.sql_history import open_history
from history.sql.tables import VERSION_TABLE, metadata
from history.store import JobQuery
from tests.history.conftest import POSTGRESQL
from tests.support.history_database import Killed, connected, content, interrupted
from tests.support.history_rows import hold, job, wait
from tests.support.postgres_server import PostgresServer

ROWS = [job("u1", ended=9, outcome="Succeeded"), hold("u1", 2, 9), wait("u1", 0, 2)]


@pytest.fixture(params=["sqlite", POSTGRESQL])
def nothing(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.sqlite"
    server: PostgresServer = request.getfixturevalue("postgres")
    server.execute("DROP DATABASE IF EXISTS empty WITH (FORCE)")
    server.execute("CREATE DATABASE empty")
    return server.url("empty")


def set_version(url: str, version: int, oldest: int = 1) -> None:
    """Make the tables those of another version, with a column and a table that this version does not know."""
    with connected(url) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'"))
        connection.execute(text(f"UPDATE facts SET value = '{oldest}' WHERE name = 'oldest'"))
        for name in ("jobs", "holds", "waits", "pods", "parties"):
            connection.execute(text(f"ALTER TABLE {name} ADD COLUMN later BIGINT NOT NULL DEFAULT 7"))
        connection.execute(text("CREATE TABLE later (name TEXT PRIMARY KEY)"))


def test_the_tables_that_migrations_make_are_those_that_statements_use(nothing: str) -> None:
    assert migrate(nothing).endswith(f"has tables of the version {schema.SCHEMA} now; migrated")
    with connected(nothing) as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_server_default": False}
        )
        assert autogenerate.compare_metadata(context, metadata) == []
    folder = Path(migrations.__file__).parent / "versions"
    revisions = {import_module(f"{migrations.__name__}.versions.{path.stem}").revision for path in folder.glob("v*.py")}
    assert revisions == {str(number) for number in range(1, schema.SCHEMA + 1)}


def test_a_second_migration_changes_nothing(nothing: str) -> None:
    open_and_write(nothing)
    before = content(nothing)
    assert migrate(nothing).endswith("nothing to do")
    assert content(nothing) == before


def test_a_migration_that_is_killed_in_the_middle_has_changed_nothing(nothing: str) -> None:
    at = 0
    while True:
        try:
            with interrupted(Engine, at):
                migrate(nothing)
        except Killed:
            with connected(nothing) as connection:
                assert inspect(connection).get_table_names() == []
            at += 1
        else:
            break
        at += 4
    assert at > 20
    open_and_write(nothing)


def test_two_migrations_at_once_both_succeed(nothing: str) -> None:
    told: list[str] = []
    threads = [threading.Thread(target=lambda: told.append(migrate(nothing))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(text.rpartition("; ")[2] for text in told) == ["migrated", *["nothing to do"] * 3]


def test_a_version_goes_on_writing_into_the_tables_of_the_next(nothing: str) -> None:
    migrate(nothing)
    set_version(nothing, schema.SCHEMA + 1)
    assert migrate(nothing).endswith("nothing to do")
    open_and_write(nothing)


@pytest.mark.parametrize("read_only", [False, True])
def test_tables_that_are_too_new_are_refused(nothing: str, read_only: bool) -> None:
    migrate(nothing)
    set_version(nothing, schema.SCHEMA + 1, oldest=schema.SCHEMA + 1)
    for use in (lambda: open_history(nothing, "", read_only=read_only), lambda: migrate(nothing)):
        with pytest.raises(WrongSchema, match=r"of a newer torchq, and this version knows \d+: upgrade"):
            use()


def test_tables_that_are_missing_or_too_old_are_refused(nothing: str) -> None:
    if nothing.startswith("sqlite"):
        Path(nothing.removeprefix("sqlite:///")).touch()
    with pytest.raises(WrongSchema, match=r"has no tables and this version needs \d+: torchq history migrate"):
        open_history(nothing, "", read_only=nothing.startswith("sqlite"))


def test_the_database_of_another_program_is_refused_and_left_alone(nothing: str) -> None:
    with connected(nothing) as connection:
        connection.execute(text("CREATE TABLE users (name TEXT PRIMARY KEY)"))
    for use in (lambda: open_history(nothing, ""), lambda: migrate(nothing)):
        with pytest.raises(WrongSchema, match="belongs to another program: it has the table users"):
            use()
    with connected(nothing) as connection:
        assert inspect(connection).get_table_names() == ["users"]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "history.sqlite").write_text("name,hours\n" * 1000)
    with pytest.raises(NotReachable, match="is not a database of SQLite"):
        open_history(f"sqlite:///{tmp_path}/history.sqlite", "", read_only=read_only)


def open_and_write(url: str) -> None:
    """Write rows, and read them."""
    migrate(url)
    store = open_history(url, "")
    assert store.write(ROWS) == len(ROWS)
    assert store.write(ROWS) == 0
    assert [record.holds for record in store.jobs(JobQuery())] == [(ROWS[1],)]
    store.close()
