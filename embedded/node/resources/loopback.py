"""The TCP connections between processes of this machine, from /proc.

One rule: this module only reads, and a file that it may not read counts as absent. A look costs one read of the list of
connections, and of the descriptors of the processes about which the caller asks.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED, _LISTENING = "01", "0A"
_IPV4_IN_IPV6 = "0000000000000000FFFF0000"
"""The beginning of an IPv4 address in the table of IPv6."""
Place = tuple[str, int]
"""An address in the notation of the table, and a port."""


@dataclass(frozen=True, slots=True)
class LocalConnection:
    """A connection between two sockets of this machine, which are given by their inodes."""

    port: int
    """The port that accepted it."""
    client: int
    server: int


@dataclass(frozen=True, slots=True)
class Tables:
    """The sockets of this machine."""

    listening: dict[int, set[int]]
    """By port, the inodes of the sockets that accept connections."""
    established: dict[tuple[Place, Place], int]
    """By own place and that of the other end, the inode."""

    def connections(self) -> Iterator[LocalConnection]:
        """Yield the connections of which both ends are on this machine."""
        for (local, remote), inode in self.established.items():
            server = self.established.get((remote, local))
            if server and inode and remote[1] in self.listening and local[1] not in self.listening:
                yield LocalConnection(remote[1], inode, server)


def read(tables: Iterable[Path] = _TABLES) -> Tables:
    """Return the sockets of this machine."""
    result = Tables({}, {})
    for path in tables:
        with suppress(OSError), path.open(encoding="ascii") as file:
            next(file, None)
            for line in file:
                fields = line.split()
                local, remote, state, inode = _place(fields[1]), _place(fields[2]), fields[3], int(fields[9])
                if state == _LISTENING:
                    result.listening.setdefault(local[1], set()).add(inode)
                elif state == _ESTABLISHED:
                    result.established[local, remote] = inode
    return result


def sockets(pids: Iterable[int]) -> set[int]:
    """Return the inodes of the sockets of processes."""
    return {inode for pid in pids for inode in _sockets(pid)}


def _sockets(pid: int) -> Iterator[int]:
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):
                target = os.readlink(f"{folder}/{name}")
                if target.startswith("socket:["):
                    yield int(target[8:-1])


def _place(text: str) -> Place:
    address, _, port = text.partition(":")
    return address.removeprefix(_IPV4_IN_IPV6), int(port, 16)
