"""A Sentinel installation on loopback for a test: a master, replicas and three sentinels, each a real process.

One rule: the processes listen on reserved ports, and end with the block. The program is the program of
`tests.support.redis_server`: every Redis or Valkey server can also be a sentinel, so no machine needs another package.

The sentinels and the replicas have separate accounts, so `cut_off` can separate a server from both while its clients
stay connected. A master refuses writes without a replica (`min-replicas-to-write 1`), so there are two replicas: one
replica is left when the other replica becomes the master.
"""

import contextlib
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support import ports, redis_server
from tests.support.waiting import until

NAME = "mymaster"
"""The name under which the sentinels know the master."""
DOWN_AFTER_MILLISECONDS = 1000
"""The time after which a sentinel believes that a server that does not answer is dead."""
MAX_LAG_SECONDS = 2
"""How long a master accepts writes without a replica: `min-replicas-max-lag`. A server checks it once a second."""
PASSWORD = "pass:word"
"""The password of the account `default` of the servers."""
ACL_FILE = "users.acl"
"""The name of the file with the accounts of a server, in its folder."""
_PASSWORD = "internal"
_INTERNAL = ("sentinel", "replica")
_SERVER: Mapping[str, str] = {
    "save": '""',
    "appendonly": "yes",
    "shutdown-timeout": "0",
    "repl-diskless-sync-delay": "0",
    "repl-diskless-load": "swapdb",
    "min-replicas-to-write": "1",
    "min-replicas-max-lag": str(MAX_LAG_SECONDS),
    "masteruser": "replica",
    "masterauth": _PASSWORD,
}
_SENTINEL: Mapping[str, str] = {
    f"sentinel down-after-milliseconds {NAME}": str(DOWN_AFTER_MILLISECONDS),
    f"sentinel failover-timeout {NAME}": "3000",
    f"sentinel auth-user {NAME}": "sentinel",
    f"sentinel auth-pass {NAME}": _PASSWORD,
}


@dataclass
class Node:
    """A server or a sentinel: its command, and its process while it runs."""

    name: str
    port: int
    command: tuple[str, ...]
    folder: Path
    password: str | None = None
    """The password of the account `default`; None for a sentinel."""
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start the process."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, cwd=self.folder, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait for its end."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Stop the process with SIGSTOP. A sentinel that slept for two seconds starts no failover for 30 seconds."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process continue."""
        self._signal(signal.SIGCONT)

    def ask(self, *command: str) -> Any:
        """Send a command as the account `default`, and return the reply. Raise RedisError if the process does not
        answer.
        """
        retry = Retry(NoBackoff(), 0)
        with redis.Redis(
            port=self.port, password=self.password, socket_timeout=2, retry=retry, decode_responses=True
        ) as connection:
            return connection.execute_command(*command)

    def answers(self) -> bool:
        """Return whether the process answers. An error is an answer, too."""
        try:
            self.ask("PING")
        except (redis.ConnectionError, redis.TimeoutError):
            return False
        except redis.RedisError:
            return True
        return True

    def role(self) -> str:
        """Return the role that the server reports, master or slave; empty if the server does not answer."""
        with contextlib.suppress(redis.RedisError):
            return str(self.ask("ROLE")[0])
        return ""

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)


@dataclass
class Installation:
    """The servers and the sentinels. The first server is the first master."""

    servers: list[Node]
    sentinels: list[Node]

    def start(self) -> None:
        """Start all processes, and wait until the sentinels can carry out a failover."""
        for node in self.nodes:
            node.start()
        until(self.is_ready)

    def is_ready(self) -> bool:
        """Return whether every sentinel knows every server, replica and sentinel, and none of them is down."""
        with contextlib.suppress(redis.RedisError, StopIteration):
            replicas = [node for node in self.servers if node is not self.master()]
            linked = all("connected" in node.ask("ROLE") for node in replicas)
            return linked and _may_write(self.master()) and all(map(self._is_complete, self.sentinels))
        return False

    def url(self, database: int = 0, *, login: str = f":{quote(PASSWORD)}@", options: str = "") -> str:
        """Return the URL of the installation. `login` is `[USER]:PASSWORD@`, and `options` begin with `?`."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.sentinels)
        return f"redis+sentinel://{login}{hosts}/{NAME}/{database}{options}"

    def master(self) -> Node:
        """Return the server that most sentinels name as master. Raise StopIteration if no sentinel answers."""
        named = Counter(port for sentinel in self.sentinels if (port := _named(sentinel)))
        [(port, _)] = named.most_common(1) or [(0, 0)]
        return next(node for node in self.servers if node.port == port)

    def replica(self) -> Node:
        """Return a server that is not the master."""
        return next(node for node in self.servers if node is not self.master())

    def fail_over(self) -> None:
        """Ask a sentinel for a failover, as an admin does with `SENTINEL FAILOVER`."""
        self.sentinels[0].ask("SENTINEL", "FAILOVER", NAME)

    def wait_for_other_master(self, than: Node) -> Node:
        """Wait until the sentinels name another master and this server reports the role of a master. Return the
        server.
        """
        until(lambda: self.has_other_master(than))
        return self.master()

    def has_other_master(self, than: Node) -> bool:
        """Return whether the sentinels name another master and this server reports the role of a master."""
        with contextlib.suppress(StopIteration):
            found = self.master()
            return found is not than and found.role() == "master"
        return False

    def cut_off(self, server: Node, *, lagging: bool = False) -> None:
        """Separate a server from sentinels and replicas, and not from clients, as a partition between machines does.

        The server sees at once that its replicas are gone. With `lagging`, it takes writes as before until
        `notice_lag`, as in a partition that loses packets.
        """
        self._refuse(server, *_INTERNAL, lagging=lagging)

    def cut_off_replicas(self, server: Node, *, lagging: bool = False) -> None:
        """Separate a server from its replicas only, so that they fall behind."""
        self._refuse(server, "replica", lagging=lagging)

    def notice_lag(self, server: Node) -> None:
        """Let a server that lags notice that it has no replica. A real server notices this after MAX_LAG_SECONDS."""
        server.ask("CONFIG", "SET", "min-replicas-to-write", "1")

    def rejoin(self, server: Node) -> None:
        """End `cut_off` and `cut_off_replicas`."""
        self.notice_lag(server)
        for user in _INTERNAL:
            server.ask("ACL", "SETUSER", user, "on")

    def kill(self) -> None:
        """Kill all processes."""
        for node in self.nodes:
            node.kill()

    @property
    def nodes(self) -> list[Node]:
        """All processes: servers first, in the order of their start."""
        return [*self.servers, *self.sentinels]

    def _refuse(self, server: Node, *users: str, lagging: bool) -> None:
        if lagging:
            server.ask("CONFIG", "SET", "min-replicas-to-write", "0")
        for user in users:
            server.ask("ACL", "SETUSER", user, "off")
            server.ask("CLIENT", "KILL", "USER", user)

    def _is_complete(self, sentinel: Node) -> bool:
        pairs = sentinel.ask("SENTINEL", "MASTER", NAME)
        state = pairs if isinstance(pairs, dict) else dict(zip(pairs[::2], pairs[1::2], strict=True))
        replicas, others = str(len(self.servers) - 1), str(len(self.sentinels) - 1)
        known = (str(state["num-slaves"]), str(state["num-other-sentinels"])) == (replicas, others)
        flags = [state["flags"], *(each["flags"] for each in _replicas(sentinel))]
        return known and not any("down" in str(each) or "disconnected" in str(each) for each in flags)


def prepare(folder: Path, taken: list[int], *, replicas: int = 2, users: tuple[str, ...] = ()) -> Installation:
    """Write the files of an installation with `replicas + 4` ports, and return it; nothing runs yet.

    `users` are further accounts of the servers, as `NAME RULES`.
    """
    program = redis_server.program()
    servers = [
        _node(program, folder, f"redis-{number}", port, _server_lines(port, taken[0]))
        for number, port in enumerate(taken[: replicas + 1])
    ]
    for server in servers:
        with (server.folder / "server.conf").open("a") as file:
            file.write(f"aclfile {server.folder / ACL_FILE}\n")
        (server.folder / ACL_FILE).write_text(acl(users))
    watching = taken[replicas + 1 : replicas + 4]
    sentinels = [
        _node(program, folder, f"sentinel-{number}", port, _sentinel_lines(port, taken, watching), "--sentinel")
        for number, port in enumerate(watching)
    ]
    return Installation(servers, sentinels)


@contextlib.contextmanager
def running(folder: Path, *, replicas: int = 2, users: tuple[str, ...] = ()) -> Iterator[Installation]:
    """Start an installation and yield it once its sentinels are ready. Skip the test without a server program."""
    with contextlib.ExitStack() as kept:
        taken = [kept.enter_context(ports.reserve()) for _ in range(replicas + 4)]
        installation = prepare(folder, taken, replicas=replicas, users=users)
        kept.callback(installation.kill)
        installation.start()
        yield installation


def _node(program: str, folder: Path, name: str, port: int, lines: list[str], *arguments: str) -> Node:
    own = folder / name
    own.mkdir(parents=True)
    file = own / "server.conf"
    file.write_text("\n".join([f"port {port}", f"dir {own}", "bind 127.0.0.1", "protected-mode no", *lines, ""]))
    return Node(name, port, (program, str(file), *arguments), own, None if arguments else PASSWORD)


def acl(users: Sequence[str]) -> str:
    """Return the text of a server's ACL file: the accounts of the installation itself, and `users`."""
    own = (
        f"default on >{PASSWORD} ~* &* +@all",
        f"replica on >{_PASSWORD} +psync +replconf +ping",
        f"sentinel on >{_PASSWORD} allchannels +multi +slaveof +replicaof +ping +exec +subscribe +config|rewrite +role "
        "+publish +info +client|setname +client|kill +script|kill",
    )
    return "".join(f"user {each}\n" for each in (*own, *users))


def _server_lines(port: int, master: int) -> list[str]:
    own = [] if port == master else [f"replicaof 127.0.0.1 {master}"]
    return [*own, *(f"{name} {value}" for name, value in _SERVER.items())]


def _sentinel_lines(port: int, taken: list[int], watching: list[int]) -> list[str]:
    """Return the lines with all replicas and sentinels, which the sentinels would otherwise take seconds to find."""
    replicas = [each for each in taken[1 : len(taken) - len(watching)]]
    others = [each for each in watching if each != port]
    return [
        f"sentinel myid {_identity(port)}",
        f"sentinel monitor {NAME} 127.0.0.1 {taken[0]} 2",
        *(f"{name} {value}" for name, value in _SENTINEL.items()),
        *(f"sentinel known-replica {NAME} 127.0.0.1 {each}" for each in replicas),
        *(f"sentinel known-sentinel {NAME} 127.0.0.1 {each} {_identity(each)}" for each in others),
    ]


def _identity(port: int) -> str:
    return f"{port:040d}"


def _may_write(master: Node) -> bool:
    state = master.ask("INFO", "replication")
    return int(state["min_slaves_good_slaves"]) > 0


def _named(sentinel: Node) -> int:
    """Return the port of the master that a sentinel names; 0 if it does not answer."""
    with contextlib.suppress(redis.RedisError):
        found = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return int(found[1]) if found else 0
    return 0


def _replicas(sentinel: Node) -> list[Mapping[str, Any]]:
    found = sentinel.ask("SENTINEL", "REPLICAS", NAME)
    return [each if isinstance(each, dict) else dict(zip(each[::2], each[1::2], strict=True)) for each in found]
