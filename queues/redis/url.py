"""Redis URLs: their check, and their text without secrets.

One rule: no part of a password gets into a message, whatever the URL is. A URL that cannot be parsed is refused, since
half of a password could look like a host.

    redis://[USER][:PASSWORD]@HOST[:PORT][/DB]
    rediss://[USER][:PASSWORD]@HOST[:PORT][/DB][?ssl_ca_certs=FILE&ssl_certfile=FILE&ssl_keyfile=FILE]
    unix://[USER][:PASSWORD]@/PATH[?db=DB]
    redis+sentinel://..., rediss+sentinel://...     (see queues/redis/sentinel_url.py)
"""

import os
import re
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from queues import errors
from queues.redis import sentinel_url

SCHEMES = ("redis", "rediss", "unix", *sentinel_url.SCHEMES)
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
    pattern = sentinel_url.PLACE if scheme in sentinel_url.SCHEMES else _PLACE
    if scheme not in SCHEMES or not pattern.fullmatch(place):
        return "(not shown)"
    return f"{scheme}://{place}"


def has_password(url: str) -> bool:
    """Return whether the URL has a password, or a part that may be a password."""
    before, at, _ = url.partition("://")[2].rpartition("@")
    return (bool(at) and ":" in before) or "password=" in url


def address(url: str) -> str:
    """Return a usable URL in its normal form, without its user, password and options but the database."""
    if sentinels := sentinel_url.parse(url):
        return sentinels.shown
    parts = urlsplit(url)
    database = parse_qs(parts.query).get("db", [""])[0]
    if parts.scheme == "unix":
        return f"unix://{unquote(parts.path)}?db={database or 0}"
    host = unquote(parts.hostname or "")
    place = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{place}:{parts.port or 6379}/{database or parts.path.strip('/') or 0}"


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
        return "it must begin with redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel://"
    if parts.scheme != "unix" and "@" in parts.path + parts.fragment:
        return "write the characters @ / ? # : of a user or password as %40 %2F %3F %23 %3A"
    match parts.scheme:
        case "unix":
            place = _unix_problem(parts)
        case "redis" | "rediss":
            place = _host_problem(parts)
        case _:
            place = _sentinel_problem(url)
    return place or _option_problem(parts)


def _unix_problem(parts: SplitResult) -> str:
    if parts.netloc.rpartition("@")[2] or not parts.path.strip("/"):
        return "unix:// needs the path of a socket, as in unix:///run/redis.sock"
    return ""


def _sentinel_problem(url: str) -> str:
    try:
        sentinel_url.parse(url)
    except ValueError as error:
        return str(error)
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
        sentinel = sentinel_url.OPTIONS if parts.scheme in sentinel_url.SCHEMES else ()
        allowed = (*_OPTIONS, *sentinel, *(_TLS if parts.scheme.startswith("rediss") else ()))
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
