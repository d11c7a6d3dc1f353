"""The history in a database on bad days: kills, a server that goes away, and a database that takes nothing."""

import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import event, text

from history.errors import BadDatabase, ForeignHistory, HistoryError, NotReachable
from history.rows import GapRow, PoolRow, QueueRow, Row
from history.sql import database
from history.sql.migrations.migrate import migrate
from history.sql.sql_history import SqlHistory, open_history
from history.store import JobQuery, Span
from tests.support import postgres_server
from tests.support.history_database import Killed, connected, content, engine, interrupted
from tests.support.history_rows import GPU, hold, job, merged, pod, wait

ROOT = Path(__file__).parents[3]
WEIGHT = QueueRow(name="a", start=0, version=900, weight=2)
BEFORE: list[Row] = [
    job("u1"),
    hold("u1", 0, None),
    wait("u1", 0, 9),
    job("u2", ended=5),
    hold("u2", 2, 5),
    pod("p2", "u2", 5, 6),
]
AFTER: list[Row] = [
    job("u1", 2, ended=30, outcome="Failed", user="ann"),
    hold("u1", 0, 10, version=2),
    merged("u1", "1-2", 0, 20, 50, version=2),
    hold("u1", 20, 30, 4, number=3, version=2),
    wait("u1", 10, 15, version=2),
    job("u3", 2),
    pod("p1", "u1", 30, None, 7),
    QueueRow(name="a", start=0, version=1, weight=2),
    PoolRow(start=0, amounts={GPU: 8}),
    GapRow(start=1, end=2),
]


@pytest.fixture
def store(url: str) -> Iterator[SqlHistory]:
    opened = open_history(url, "")
    opened.write(BEFORE)
    yield opened
    opened.close()


class TestKills:
    def test_a_kill_at_any_statement_of_a_write_leaves_the_rows_of_before_or_after(
        self, store: SqlHistory, url: str
    ) -> None:
        before = content(url)
        at = 0
        while True:
            try:
                with interrupted(engine(store), at):
                    store.write(AFTER)
            except Killed:
                assert content(url) == before
                at += 1
            else:
                break
        assert at > 20
        after = content(url)
        assert after != before
        assert store.write(AFTER) == 0
        assert content(url) == after

    def test_a_kill_at_any_statement_of_pruning_loses_no_row_that_is_needed(self, store: SqlHistory) -> None:
        store.write(AFTER)
        at = 0
        while True:
            try:
                with interrupted(engine(store), at):
                    store.prune(20, 5)
            except Killed:
                (group,) = store.sums(Span(6, 90), 50)
                assert (group.held, group.jobs) == ({GPU: 50 - 50 * 6 // 20 + 40 + 7 * 20}, 1)
                at += 1
            else:
                break
        assert at > 5
        assert [record.job.uid for record in store.jobs(JobQuery())] == ["u3", "u1"]


@pytest.mark.servers
def test_a_server_that_is_killed_in_the_middle_of_a_write_has_the_rows_of_before(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with postgres_server.running(tmp_path_factory.getbasetemp()) as server:
        url = server.url()
        migrate(url)
        store = open_history(url, "cluster-1")
        store.write(BEFORE)
        before = content(url)
        with interrupted(engine(store), 12, server.kill), pytest.raises(NotReachable, match="PostgreSQL at"):
            store.write(AFTER)
        with pytest.raises(NotReachable) as refusal:
            store.jobs(JobQuery())
        assert postgres_server.PASSWORD not in str(refusal.value)
        server.start()
        assert content(url) == before
        assert store.write(AFTER) == len(AFTER)
        store.close()


class TestTroubles:
    def test_a_database_that_another_program_has_locked_is_named(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(database, "_BUSY_SECONDS", 0.1)
        store = open_history(url, "")
        lock = "BEGIN IMMEDIATE" if url.startswith("sqlite") else f"SELECT pg_advisory_lock({database._LOCK})"
        with connected(url) as other:
            other.execute(text(lock))
            with pytest.raises(NotReachable, match="is locked by another program"):
                store.write(BEFORE)
            assert store.jobs(JobQuery()) == []
        store.write(BEFORE)
        store.close()

    @pytest.mark.parametrize("url", ["sqlite"], indirect=True)
    def test_a_full_database_is_named_and_goes_on_when_it_has_room(self, store: SqlHistory) -> None:
        @event.listens_for(engine(store), "checkout")
        def limit(connection: object, *_: object) -> None:
            connection.execute(f"PRAGMA max_page_count = {pages}")

        pages = 1
        rows = [job(f"u{number}", message="x" * 4000) for number in range(100)]
        with pytest.raises(NotReachable, match="is full"):
            store.write(rows)
        assert len(store.jobs(JobQuery())) == 2
        pages = 10_000
        assert store.write(rows) == 98

    def test_a_database_that_is_read_only_is_named(self, url: str) -> None:
        open_history(url, "").close()
        if not url.startswith("sqlite"):
            with connected(url) as admin:
                admin.execute(text("ALTER ROLE torchq SET default_transaction_read_only = on"))
        store = open_history(url, "", read_only=True)
        try:
            with pytest.raises(NotReachable, match="is read-only"):
                store.write(BEFORE)
            assert store.jobs(JobQuery()) == []
        finally:
            store.close()
            if not url.startswith("sqlite"):
                with connected(url) as admin:
                    admin.execute(text("SET default_transaction_read_only = off"))
                    admin.execute(text("ALTER ROLE torchq RESET default_transaction_read_only"))

    def test_the_history_of_another_cluster_is_refused_with_both_uids(self, url: str) -> None:
        for cluster in ("cluster-1", "cluster-1", ""):
            open_history(url, cluster).close()
        for read_only in (False, True):
            with pytest.raises(ForeignHistory, match=r"cluster-1, here it is cluster-2"):
                open_history(url, "cluster-2", read_only=read_only)

    def test_the_history_of_another_cluster_is_taken_over_as_the_docs_say(self, url: str) -> None:
        old = open_history(url, "cluster-1")
        old.write([*BEFORE, pod("p1", "u1", 3, None, version=900), job("u4", 900, ended=7, user="ann"), WEIGHT])
        old.close()
        _, _, rest = (ROOT / "docs/recorder.md").read_text().partition("```sql\n")
        with connected(url) as connection:
            for statement in filter(str.strip, rest.partition("```")[0].replace("NEW-UID", "cluster-2").split(";")):
                connection.execute(text(statement))
        store = open_history(url, "cluster-2")
        assert store.write([job("u4", 12, ended=7, user="bob"), replace(WEIGHT, version=3, weight=5)]) == 2
        (found,) = store.jobs(JobQuery(uid="u4"))
        assert (found.job.user, [row.weight for row in store.queues(Span(0, 9))]) == ("bob", [5])
        assert [row.version for row in (*store.open_pods(), *(each.row for each in store.open_jobs()))] == [0, 0]
        store.close()

    def test_threads_and_two_stores_that_write_the_same_leave_it_once(self, url: str) -> None:
        stores = [open_history(url, "") for _ in range(2)]
        rows = [row for number in range(40) for row in (job(f"u{number}", number), hold(f"u{number}", 0, 9, number))]
        failures: list[BaseException] = []

        def write(store: SqlHistory, order: int) -> None:
            try:
                for first in range(0, len(rows), 8):
                    store.write(rows[::order][first : first + 8])
                    store.sums(Span(0, 9), 9)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write, args=(store, order)) for store in stores for order in (1, -1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(content(url)["charges"]) == 40
        assert len(stores[0].jobs(JobQuery(limit=99))) == 40
        for store in stores:
            store.close()


class TestSqliteFiles:
    def test_are_private_to_their_owner(self, tmp_path: Path) -> None:
        store = open_history(f"sqlite:///{tmp_path}/history.sqlite", "")
        store.write(BEFORE)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert modes == dict.fromkeys(["history.sqlite", "history.sqlite-shm", "history.sqlite-wal"], 0o600)
        store.close()

    def test_that_do_not_exist_are_not_made_by_a_reader(self, tmp_path: Path) -> None:
        with pytest.raises(NotReachable, match="there is no history yet"):
            open_history(f"sqlite:///{tmp_path}/history.sqlite", "", read_only=True)
        assert list(tmp_path.iterdir()) == []

    def test_that_are_removed_while_they_are_open_take_no_rows(self, tmp_path: Path) -> None:
        """Linux keeps a removed file for who has opened it: what is written there is lost."""
        url = f"sqlite:///{tmp_path}/history.sqlite"
        store = open_history(url, "")
        for path in tmp_path.iterdir():
            path.unlink()
        with pytest.raises(NotReachable, match="was removed or replaced"):
            store.write(BEFORE)
        assert store.is_replaced
        store.close()
        store = open_history(url, "")
        assert store.write(BEFORE) == len(BEFORE)
        store.close()

    def test_in_a_folder_that_does_not_exist_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(NotReachable, match="cannot be opened: No such file"):
            open_history(f"sqlite:///{tmp_path}/nowhere/history.sqlite", "")

    def test_are_read_while_a_recorder_writes(self, tmp_path: Path) -> None:
        (tmp_path / "a #%20 folder").mkdir()
        url = f"sqlite:///{tmp_path}/a #%20 folder/history.sqlite"
        recorder = open_history(url, "")
        reader = open_history(url, "", read_only=True)
        with recorder._database.writing() as connection:
            connection.execute(text("DELETE FROM jobs"))
            assert reader.jobs(JobQuery()) == []
        recorder.write(BEFORE)
        assert len(reader.jobs(JobQuery())) == 2
        reader.close()
        recorder.close()

    @pytest.mark.servers
    @pytest.mark.skipif(os.getuid() != 0, reason="only root becomes a user who may not write")
    @pytest.mark.parametrize("is_running", [True, False])
    def test_are_read_in_a_folder_that_is_read_only(self, is_running: bool) -> None:
        """The reader may read the files, and write nothing."""
        # The folders of tests are private.
        with tempfile.TemporaryDirectory(prefix="torchq-history-") as folder:
            url = f"sqlite:///{folder}/history.sqlite"
            recorder = open_history(url, "")
            recorder.write(BEFORE)
            if not is_running:
                recorder.close()
            for path in (Path(folder), *Path(folder).iterdir()):
                path.chmod(0o755 if path.is_dir() else 0o644)
            code = (
                "import os, sys; from history.sql.sql_history import open_history; from history.store import JobQuery; "
                "os.setgid(65534); os.setuid(65534); "
                "print(len(open_history(sys.argv[1], '', read_only=True).jobs(JobQuery())))"
            )
            done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=False)
            recorder.close()
        assert (done.stdout, done.stderr) == ("2\n", "")


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "words"),
        [
            ("", "is no URL"),
            ("nonsense", "is no URL"),
            ("postgresql://torchq:s3cret@[::1", "is no URL"),
            ("postgresql://torchq:s3cret@host:port/x", "is no URL"),
            ("postgresql://torchq:part@s3cret@host/x", "write %40 for an @"),
            ("postgresql://torchq:part@more/s3cret@host/x", "write %40 for an @"),
            ("mysql://torchq:s3cret@host/x", "names mysql"),
            ("postgresql+asyncpg://torchq:s3cret@host/x", "names postgresql+asyncpg"),
            ("sqlite://", "names no file"),
            ("sqlite:///:memory:", "names no file"),
            ("sqlite:////tmp/x?mode=ro", "names no file"),
        ],
    )
    def test_that_name_no_database_are_refused_without_their_password(self, url: str, words: str) -> None:
        with pytest.raises(BadDatabase) as refusal:
            open_history(url, "")
        assert words in str(refusal.value)
        assert "s3cret" not in repr(refusal.value)

    @pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
    def test_of_postgresql_have_the_driver_of_torchq(self, scheme: str) -> None:
        assert database.parse(f"{scheme}://host/x").drivername == "postgresql+psycopg"

    @pytest.mark.servers
    @pytest.mark.parametrize(
        "wrong",
        [
            lambda url: url.replace("postgresql://torchq", "postgresql://nobody"),
            lambda url: url.replace("w%2Ford", "w%2Ford2").replace("word", "word2"),
            lambda url: url.replace("/torchq?", "/nothing?"),
            lambda url: f"{url}-elsewhere",
            lambda url: f"{url}&nonsense=1",
        ],
        ids=["user", "password", "database", "host", "option"],
    )
    def test_that_a_server_refuses_are_told_without_their_password(
        self, wrong: object, postgres: postgres_server.PostgresServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        url = wrong(postgres.url("torchq"))
        assert url != postgres.url("torchq")
        with pytest.raises(HistoryError) as refusal:
            open_history(url, "")
        for told in (str(refusal.value), repr(refusal.value.__cause__), caplog.text):
            assert not any(
                secret in told for secret in (postgres_server.PASSWORD, quote(postgres_server.PASSWORD), "word2")
            )

    @pytest.mark.servers
    def test_of_a_database_without_unicode_are_refused(self, postgres: postgres_server.PostgresServer) -> None:
        postgres.execute("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
        with pytest.raises(BadDatabase, match="has the encoding SQL_ASCII"):
            open_history(postgres.url("ascii"), "")
