"""Reading of the record of an RQ job, which another program may have written.

One rule: nothing in a record is imported, unpickled or trusted, and reading it takes bounded memory. This module does
not need RQ.
"""

import re
import zlib
from collections.abc import Mapping
from typing import Any

import orjson

from crds.keys import JobKey
from queues.work import Lease

FUNCTION = "torchq.reconcile"
"""The function name in every record that queues/lua/work/dispatch.lua writes."""
FIELDS = (
    *("data", "origin", "status", "description", "timeout", "result_ttl", "failure_ttl", "worker_name"),
    *("created_at", "enqueued_at", "started_at", "ended_at", "last_heartbeat"),
)
"""The fields that are read. Callbacks, webhooks, dependencies, retries, repeats and meta are not read."""
MOST_BYTES = 1 << 18
"""The longest record that is read. The record of the largest batch has a tenth of that length."""
MOST_SECONDS = 7 * 86400
"""The longest timeout that a record may have, in seconds."""
KEPT_SECONDS = 3600
"""How long an invalid job is kept for an inspection, in seconds. RQ's default is a year."""
MOST_KEYS = 1024
"""The most keys that one batch may have."""

_KEY = re.compile(r"[a-z0-9.-]{1,253}/[a-z0-9.-]{1,253}/[A-Za-z0-9-]{1,128}", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


class InvalidBatch(Exception):
    """The RQ job is not a batch of torchq; no worker runs it."""


def is_id(job_id: str) -> bool:
    """Return whether a text is an id that RQ gives to jobs, and not too long."""
    return _ID.fullmatch(job_id) is not None


def check_length(length: int) -> None:
    """Raise InvalidBatch for a record that is not a hash, which has the length -1, and for a record that is too
    long."""
    if length < 0:
        raise InvalidBatch("its record is not a hash")
    if length > MOST_BYTES:
        raise InvalidBatch(f"its record is {length} bytes long")


def check_times(*seconds: int | None) -> None:
    """Raise InvalidBatch for times that a batch never has. RQ would pass them on to Redis."""
    if any(value is not None and not 0 <= value <= MOST_SECONDS for value in seconds):
        raise InvalidBatch("its record is broken (times)")


def decompress(data: bytes) -> bytes:
    """Return the data field of a record without compression: RQ compresses the field, torchq does not. Raises
    InvalidBatch if the text is longer than MOST_BYTES."""
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(data, MOST_BYTES + 1)
    except zlib.error:
        text = data
    if len(text) > MOST_BYTES:
        raise InvalidBatch(f"its record is longer than {MOST_BYTES} bytes")
    return text


def function_name(record: Mapping[bytes, bytes]) -> str:
    """Return the function that a record names; empty if a worker could not run the record."""
    try:
        name, *_ = orjson.loads(decompress(record[b"data"]))
    except (KeyError, TypeError, ValueError, InvalidBatch):
        return ""
    return name if isinstance(name, str) else ""


def parse_leases(batch: Any) -> list[Lease]:
    """Return the leases in a record's argument, JSON [[key, token], ...]. Raises InvalidBatch for any other value."""
    if not isinstance(batch, list) or len(batch) > MOST_KEYS:
        raise InvalidBatch("not a batch of keys")
    return [_lease(item) for item in batch]


def _lease(item: Any) -> Lease:
    match item:
        case [str(key), str(token)] if _KEY.fullmatch(key) and _TOKEN.fullmatch(token):
            return JobKey.parse(key), token
    raise InvalidBatch("not a key and its token")


def shorten(value: object) -> str:
    """Return a value from a record as text that is short enough for one line of a log."""
    text = repr(value) if isinstance(value, str) else type(value).__name__
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"
