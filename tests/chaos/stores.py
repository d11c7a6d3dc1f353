"""The Redis of an arena: one server behind the proxies, or a Sentinel installation.

One rule: torchq uses the account of `torchq redis acl`. The passwords of this account are in the ACL file of each
server, so a server that starts again knows the newest passwords.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from embedded.layout import Layout
from embedded.redis import server_program
from queues.redis.acl import WRITER
from tests.support import sentinel

PASSWORD = "p:ss@wd/0"
"""The first password of the account of torchq."""
PORTS = 6
"""The ports of a Sentinel installation: a master, two replicas and three sentinels."""
_INSIST_SECONDS = 20.0
Add = Callable[[str, Sequence[str]], None]


class Server(Protocol):
    """A Redis server that an admin can reach."""

    @property
    def folder(self) -> Path:
        """The folder of the server's files."""

    def ask(self, *command: str) -> Any:
        """Send a command as admin, and return the reply."""


class Store(Protocol):
    """The Redis of an arena."""

    servers: Sequence[Server]
    names: Sequence[str]
    """The names of the processes of its servers."""

    def start(self, add: Add) -> None:
        """Start the processes."""

    def is_ready(self) -> bool:
        """Return whether clients can use the store."""

    def master(self) -> str:
        """Return the name of the process that takes writes. Raise StopIteration if no sentinel answers."""

    def connection(self) -> "redis.Redis":
        """Return a new client of an admin for the server that takes writes."""

    def url(self, client: str, password: str, /) -> str:
        """Return the URL for a process of torchq."""


@dataclass(frozen=True)
class SocketServer:
    """The server of one machine, at its unix socket."""

    socket: Path

    @property
    def folder(self) -> Path:
        return self.socket.parent

    def ask(self, *command: str) -> Any:
        with contextlib.closing(_client(unix_socket_path=str(self.socket))) as connection:
            return connection.execute_command(*command)


class OneServer:
    """One server at a unix socket. Processes reach it through proxies at the ports that `port_of` returns."""

    names = ("redis",)

    def __init__(self, layout: Layout, port_of: Callable[[str], int]) -> None:
        self._command = server_program.prepare(layout)
        self.socket = Path(self._command.url.removeprefix("unix://"))
        self._port_of = port_of
        self.servers = [SocketServer(self.socket)]
        self._accounts = layout.redis / sentinel.ACL_FILE
        self._accounts.write_text(f"user default on nopass ~* &* +@all\nuser {account(PASSWORD)}\n")

    def start(self, add: Add) -> None:
        add("redis", [*self._command.command, "--aclfile", str(self._accounts)])

    def is_ready(self) -> bool:
        return server_program.answers(f"unix://{self.socket}")

    def master(self) -> str:
        return "redis"

    def connection(self) -> "redis.Redis":
        return _client(unix_socket_path=str(self.socket))

    def url(self, client: str, password: str, /) -> str:
        return f"redis://torchq:{quote(password, safe='')}@127.0.0.1:{self._port_of(client)}/0"


class Sentinels:
    """A Sentinel installation, which processes reach without proxies."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.installation = sentinel.prepare(folder, ports, users=(account(PASSWORD),))
        self.servers = self.installation.servers
        self.names = tuple(each.name for each in self.servers)

    def start(self, add: Add) -> None:
        for node in self.installation.nodes:
            add(node.name, node.command)

    def is_ready(self) -> bool:
        return self.installation.is_ready()

    def master(self) -> str:
        return self.installation.master().name

    def connection(self) -> "redis.Redis":
        try:
            return _client(port=self.installation.master().port, password=sentinel.PASSWORD)
        except StopIteration:
            raise redis.ConnectionError("no sentinel answers") from None

    def url(self, _client: str, password: str, /) -> str:
        return self.installation.url(login=f"torchq:{quote(password, safe='')}@")


def account(*passwords: str) -> str:
    """Return the account of torchq, as a line of an ACL file without the word `user`, with all of these passwords."""
    line = WRITER.acl_line(passwords[0]).removeprefix("user ")
    return " ".join((line, *(f">{password}" for password in passwords[1:])))


def accept(servers: Sequence[Server], *passwords: str) -> None:
    """Let servers accept these passwords of torchq and no other. Open connections stay open. Only one thread may call
    this function at a time.

    The command is repeated for some seconds if a server does not answer. A server that is down reads the file at its
    next start.
    """
    for each in servers:
        file = each.folder / sentinel.ACL_FILE
        lines = [line for line in file.read_text().splitlines() if not line.startswith("user torchq ")]
        new = file.with_suffix(".new")
        new.write_text("\n".join([*lines, f"user {account(*passwords)}", ""]))
        new.replace(file)
    name, *rules = account(*passwords).split()
    for each in servers:
        insist(partial(each.ask, "ACL", "SETUSER", name, "resetpass", *rules))


def insist(deed: Callable[[], Any], seconds: float = _INSIST_SECONDS) -> None:
    """Repeat a command of an admin until a server has carried it out, for some seconds at most."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(redis.RedisError):
            deed()
            return
        time.sleep(0.1)


def forget(servers: Sequence[Server]) -> None:
    """Delete the data of servers that do not run."""
    for each in servers:
        shutil.rmtree(each.folder / "appendonlydir", ignore_errors=True)
        (each.folder / "dump.rdb").unlink(missing_ok=True)


def _client(**options: Any) -> "redis.Redis":
    return redis.Redis(decode_responses=True, socket_timeout=5, retry=Retry(NoBackoff(), 0), **options)
