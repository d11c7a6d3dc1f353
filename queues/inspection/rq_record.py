"""The record of an RQ job, read as what somebody else may have written.

One rule: nothing in it is imported, unpickled or believed, and reading it takes bounded memory. This module does not
need RQ.
"""

import re
import zlib
from collections.abc import Mapping
from typing import Any

import orjson

from crds.keys import JobKey
from queues.work import Lease

FUNCTION = "torchq.reconcile"
"""The name in every record that queues/lua/work/dispatch.lua writes."""
FIELDS = (
    *("data", "origin", "status", "description", "timeout", "result_ttl", "failure_ttl", "worker_name"),
    *("created_at", "enqueued_at", "started_at", "ended_at", "last_heartbeat"),
)
"""Fields that are read back. Not among them: callbacks, webhooks, dependencies, retries, repeats, meta."""
MOST_BYTES = 1 << 18
"""The longest record that is read; one of the largest batch that a dispatch makes is a tenth of that."""
MOST_SECONDS = 7 * 86400
"""The longest time that a record may ask for."""
KEPT_SECONDS = 3600
"""How long a refused job is kept for people to look at; RQ would keep it for a year."""
MOST_KEYS = 1024
"""The most keys that one batch may have."""

_KEY = re.compile(r"[a-z0-9.-]{1,253}/[a-z0-9.-]{1,253}/[A-Za-z0-9-]{1,128}", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


class Refused(Exception):
    """The job is not a batch of ours; it is not run."""


def is_id(job_id: str) -> bool:
    """Whether RQ would give a job this id, and it has a length one can handle."""
    return _ID.fullmatch(job_id) is not None


def check_length(length: int) -> None:
    """Refused for a record that is no hash, which has the length -1, or a long one."""
    if length < 0:
        raise Refused("its record is no hash")
    if length > MOST_BYTES:
        raise Refused(f"its record is {length} bytes long")


def check_times(*seconds: int | None) -> None:
    """Refused for times that a batch never has; RQ would hand them on to Redis."""
    if any(each is not None and not 0 <= each <= MOST_SECONDS for each in seconds):
        raise Refused("its record is broken (times)")


def unpacked(data: bytes) -> bytes:
    """The job's own part of a record, which RQ compresses and we do not. Refused if it is longer than MOST_BYTES."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, MOST_BYTES + 1)
    except zlib.error:
        text = data
    if len(text) > MOST_BYTES:
        raise Refused(f"its record is longer than {MOST_BYTES} bytes")
    return text


def function(record: Mapping[bytes, bytes]) -> str:
    """The function that a record names; empty if it is no record that we could run."""
    try:
        name, *_ = orjson.loads(unpacked(record[b"data"]))
    except (KeyError, TypeError, ValueError, Refused):
        return ""
    return name if isinstance(name, str) else ""


def leases(batch: Any) -> list[Lease]:
    """The leases in a record's argument, JSON [[key, token], ...]. Refused for anything else."""
    if not isinstance(batch, list) or len(batch) > MOST_KEYS:
        raise Refused("not a batch of keys")
    return [_lease(each) for each in batch]


def _lease(item: Any) -> Lease:
    match item:
        case [str(key), str(token)] if _KEY.fullmatch(key) and _TOKEN.fullmatch(token):
            return JobKey.parse(key), token
    raise Refused("not a key and its token")


def short(value: object) -> str:
    """A piece of what somebody wrote, fit for one line of a log."""
    text = repr(value) if isinstance(value, str) else type(value).__name__
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"
