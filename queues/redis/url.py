"""Redis URLs: their check, and their text without secrets.

One rule: no part of a password gets into a message, whatever the URL is. A URL that cannot be parsed is refused, since
half of a password could look like a host.

    redis://[USER][:PASSWORD]@HOST[:PORT][/DB]
    rediss://[USER][:PASSWORD]@HOST[:PORT][/DB][?ssl_ca_certs=FILE&ssl_certfile=FILE&ssl_keyfile=FILE]
    unix://[USER][:PASSWORD]@/PATH[?db=DB]
"""

import os
import re
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from queues import errors

SCHEMES = ("redis", "rediss", "unix")
FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
"""Options of rediss:// that name a file: the trusted authorities, and the client's certificate and key."""
_TLS = (*FILES, "ssl_ca_path", "ssl_cert_reqs", "ssl_check_hostname")
_OPTIONS = ("db", "username", "password")
_PLACE = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)?(:[0-9]{1,5})?(/.*)?")
"""A host, a port, a path: the parts that a message may contain. Any other text may be half of a password."""
_REQUIREMENTS = ("none", "optional", "required")


def redact(url: str) -> str:
    """Return a URL without its user, password and options, for messages and logs."""
    scheme, _, rest = url.partition("://")
    place = rest.rpartition("@")[2].partition("?")[0].partition("#")[0]
    if scheme not in SCHEMES or not _PLACE.fullmatch(place):
        return "(not shown)"
    return f"{scheme}://{place}"


def has_password(url: str) -> bool:
    """Return whether the URL has a password, or a part that may be one."""
    before, at, _ = url.partition("://")[2].rpartition("@")
    return (bool(at) and ":" in before) or "password=" in url


def check(url: str) -> None:
    """Raise BadAddress, with the reason, for a URL that cannot be used."""
    try:
        problem = _problem(url)
    except ValueError:
        problem = "its port is not a number between 0 and 65535"
    if problem:
        raise errors.BadAddress(f"Redis URL {redact(url)!r}: {problem}")


def _problem(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        return "it must begin with redis://, rediss:// or unix://"
    if parts.scheme != "unix" and "@" in parts.path + parts.fragment:
        return "write the characters @ / ? # : of a user or password as %40 %2F %3F %23 %3A"
    place = _unix_problem(parts) if parts.scheme == "unix" else _host_problem(parts)
    return place or _option_problem(parts)


def _unix_problem(parts: SplitResult) -> str:
    if parts.netloc.rpartition("@")[2] or not parts.path.strip("/"):
        return "unix:// needs the path of a socket, as in unix:///run/redis.sock"
    return ""


def _host_problem(parts: SplitResult) -> str:
    database = parts.path.strip("/")
    if not parts.hostname:
        return "it has no host"
    if parts.port == 0:
        return "its port is not a number between 1 and 65535"
    if database and not database.isdecimal():
        return "its database is not a number"
    return ""


def _option_problem(parts: SplitResult) -> str:
    options = parse_qs(parts.query, keep_blank_values=True)
    for name, values in options.items():
        allowed = (*_OPTIONS, *_TLS) if parts.scheme == "rediss" else _OPTIONS
        if name not in allowed:
            only_tls = " except with rediss://" if name in _TLS else ""
            option = name if name in _TLS else "(not shown)"
            return f"option {option} is unknown{only_tls}; known: {', '.join(allowed)}"
        if name in FILES and (reason := _unreadable(unquote(values[0]))):
            return f"{name}: {values[0]}: {reason}"
        if name == "ssl_cert_reqs" and values[0] not in _REQUIREMENTS:
            return f"ssl_cert_reqs: {values[0]!r} is not one of {', '.join(_REQUIREMENTS)}"
        if name == "db" and not values[0].isdecimal():
            return "its database is not a number"
    return ""


def _unreadable(path: str) -> str:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        return error.strerror or "cannot be read"
    return ""
