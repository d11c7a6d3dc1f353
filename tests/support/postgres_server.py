"""A private PostgreSQL server for tests.

One rule: the server listens on a unix socket in a folder of its own, asks for a password, and ends with the block. It
refuses to run as root, so root starts it as another user. The program is the newest of Debian's packages, or on PATH.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from tests.support.waiting import until

DEBIAN = Path("/usr/lib/postgresql")
NONE = "needs a PostgreSQL server: Debian's package postgresql, or initdb and postgres on PATH"
USER, PASSWORD = "torchq", "s3cr/t@:word"
_UNSAFE_BUT_QUICK = ("fsync=off", "full_page_writes=off", "max_connections=40")


class PostgresServer:
    """A server, and how it is killed and started again."""

    def __init__(self, programs: Path, folder: Path, belongs_to: Path) -> None:
        """`belongs_to` is a folder of the tests: the leftovers of a run are found by it."""
        self._programs, self._folder, self._belongs_to = programs, folder, belongs_to
        self._process: subprocess.Popen[bytes] | None = None
        secret = folder / "password"
        secret.write_text(PASSWORD)
        for path in (folder, secret):
            shutil.chown(path, _user() or os.getuid())
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"]
        self._run("initdb", "-D", self._data, "-U", USER, f"--pwfile={secret}", *options)

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database, with the password."""
        url = sqlalchemy.URL.create("postgresql", USER, PASSWORD, database=database, query={"host": str(self._folder)})
        return url.render_as_string(hide_password=False)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = [f"unix_socket_directories={self._folder}", "listen_addresses=", f"torchq.tests={self._belongs_to}/"]
        arguments = [part for each in (*options, *_UNSAFE_BUT_QUICK) for part in ("-c", each)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", self._data, *arguments], stderr=log, **_as_user(self._folder)
            )
        until(self._answers)

    def kill(self) -> None:
        """Kill the server as a machine that loses its power."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Execute a statement as the owner of the server, outside of any transaction."""
        url = sqlalchemy.make_url(self.url(database)).set(drivername="postgresql+psycopg")
        engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                connection.execute(sqlalchemy.text(statement))
        finally:
            engine.dispose()

    def _answers(self) -> bool:
        with contextlib.suppress(sqlalchemy.exc.OperationalError):
            self.execute("SELECT 1")
            return True
        return False

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, **_as_user(self._folder))
        assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def running(belongs_to: Path) -> Iterator[PostgresServer]:
    """Start a server, and end it. Skip the test without a server program."""
    found = programs() or pytest.skip(NONE)
    # A folder that another user may enter: those of tests are private.
    with tempfile.TemporaryDirectory(prefix="torchq-postgres-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(found, Path(folder), belongs_to)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def programs() -> Path | None:
    """Return the folder of the server's programs, or None if the machine has none."""
    debian = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    found = str(debian[-1]) if debian else shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _user() -> str:
    """Return the user who runs the server; empty: the user of the tests."""
    if os.getuid() != 0:
        return ""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _as_user(folder: Path) -> dict[str, Any]:
    user = _user()
    return {"cwd": folder} | ({"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {})
