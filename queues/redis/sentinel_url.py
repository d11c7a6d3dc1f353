"""URLs that name sentinels: their parts, and the plain URLs of the servers that are meant.

One rule: pure; the rest of the program knows plain URLs alone.

    redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/NAME[/DB][?sentinel_username=USER&sentinel_password=PW]
    rediss+sentinel://...[?ssl_ca_certs=FILE...]     TLS to the servers and to the sentinels
"""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlencode

SCHEMES = ("redis+sentinel", "rediss+sentinel")
OPTIONS = ("sentinel_username", "sentinel_password")
"""The credentials of the sentinels themselves."""
PORT = 26379
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
PLACE = re.compile(f"({_HOST.pattern})?(,({_HOST.pattern})?)*(/[A-Za-z0-9._%/-]*)?")
"""Hosts, ports, a name and a database: the parts that a message may contain."""


@dataclass(frozen=True, slots=True)
class Sentinels:
    """The parts of a URL that names sentinels."""

    scheme: str
    """The scheme of the plain URLs."""
    login: str
    """The user and the password for the servers, as in the URL, with the `@`."""
    hosts: tuple[str, ...]
    """HOST:PORT of each sentinel."""
    name: str
    """What the sentinels call the master."""
    database: str
    options: tuple[tuple[str, str], ...]

    def server(self, host: str, port: int) -> str:
        """Return the URL of the server at an address."""
        options = [(name, value) for name, value in self.options if name not in OPTIONS]
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return f"{self.scheme}://{self.login}{place}/{self.database or 0}{_query(options)}"

    def sentinel(self, host: str) -> str:
        """Return the URL of one of the sentinels."""
        own = [(name.removeprefix("sentinel_"), value) for name, value in self.options if name in OPTIONS]
        tls = [(name, value) for name, value in self.options if name.startswith("ssl_")]
        return f"{self.scheme}://{host}/0{_query(own + tls)}"

    @property
    def shown(self) -> str:
        """The URL without secrets and options."""
        return f"{self.scheme}+sentinel://{','.join(self.hosts)}/{self.name}/{self.database or 0}"


def parse(url: str) -> Sentinels | None:
    """Return the parts of a URL; None for a URL that names no sentinels. Raises ValueError, with the reason, for a URL
    that cannot be used."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        return None
    place, _, query = rest.partition("?")
    netloc, _, path = place.partition("/")
    login, at, hosts = netloc.rpartition("@")
    name, _, database = path.strip("/").partition("/")
    if not name:
        raise ValueError("it names no master, as in redis+sentinel://HOST:26379,HOST:26379/NAME")
    if database and not database.isdecimal():
        raise ValueError("its database is not a number")
    options = tuple(parse_qsl(query, keep_blank_values=True))
    plain = scheme.removesuffix("+sentinel")
    return Sentinels(plain, login + at, _hosts(hosts), unquote(name), database, options)


def _hosts(text: str) -> tuple[str, ...]:
    found = [_HOST.fullmatch(host) for host in text.split(",")]
    if not all(found):
        raise ValueError("its sentinels are not HOST:PORT[,HOST:PORT...]")
    places = [(match[1], int(match[2] or PORT)) for match in found if match is not None]
    if any(not 0 < port < 65_536 for _, port in places):
        raise ValueError("a port is not a number between 1 and 65535")
    return tuple(f"{host}:{port}" for host, port in places)


def _query(options: list[tuple[str, str]]) -> str:
    return f"?{urlencode(options)}" if options else ""
