"""Why a Redis server cannot hold the queues, from the server's information about itself and from its refusals.

One rule: pure. Each result is the rest of a sentence that begins with the name of the server: the fault of the server,
and what an admin can do.
"""

import re
from collections.abc import Mapping

OLDEST = 7
"""The oldest major version that torchq works with."""
NOEVICTION = "noeviction"
_RIGHT = (
    "does not let this user call INFO, so it may evict keys or write no files unnoticed: give the user the right +info "
    "(`torchq redis acl` prints all rights)"
)
_REPLICA = "name the primary, or the sentinels, in the Redis URL"
_CLUSTER = "is a node of a Redis Cluster, on which torchq does not run: use a server with cluster-enabled no"
_FILE_FACTS = ("aof_last_write_status", "rdb_last_bgsave_status")
"""The facts that say whether the server could write its files the last time."""
_REFUSALS = {
    "READONLY": f"is a read-only replica: {_REPLICA}",
    "OOM": "is full: raise its maxmemory, or delete what other programs keep in it",
    "MISCONF": "cannot write its files, and so takes no writes: see its log, and whether its disk is full",
    "NOREPLICAS": "has fewer working replicas than its min-replicas-to-write, and so takes no writes",
    "MASTERDOWN": f"is a replica that has lost its primary: {_REPLICA}",
    **dict.fromkeys(("CLUSTERDOWN", "MOVED", "ASK", "CROSSSLOT"), _CLUSTER),
}
"""First word of an error reply -> why the server does not take the write."""


def problem(facts: Mapping[str, object]) -> str:
    """Return why a leader must not use a server with these facts (INFO); empty if a leader may use the server.

    A single fact that the server does not tell is no problem. Without any fact, nothing can be checked.
    """
    if not facts:
        return _RIGHT
    if facts.get("cluster_enabled") == 1:
        return _CLUSTER
    if _major(facts) < OLDEST:
        return f"has version {facts['redis_version']}, and torchq needs {OLDEST} or newer"
    if facts.get("role") == "slave":
        return f"is a replica of {facts.get('master_host')}:{facts.get('master_port')}: {_REPLICA}"
    policy = facts.get("maxmemory_policy", NOEVICTION)
    if facts.get("maxmemory") and policy != NOEVICTION:
        return f"evicts keys when it is full (maxmemory-policy {policy}): set its maxmemory-policy to {NOEVICTION}"
    return ""


def refusal(facts: Mapping[str, object]) -> str:
    """Return why a server with these facts probably takes no writes; empty if the server probably takes writes. Only a
    refused write is certain: Redis does not count all of its memory, and it may be set to continue without its files.
    """
    return _fullness(facts) or _lost_files(facts)


def _lost_files(facts: Mapping[str, object]) -> str:
    failed = [name for name in _FILE_FACTS if facts.get(name, "ok") != "ok"]
    return f"{_REFUSALS['MISCONF']} ({failed[0]} is {facts[failed[0]]})" if failed else ""


def _fullness(facts: Mapping[str, object]) -> str:
    used, most = facts.get("used_memory"), facts.get("maxmemory")
    is_full = isinstance(used, int) and isinstance(most, int) and 0 < most <= used
    return _REFUSALS["OOM"] if is_full else ""


def refused_write(code: str, message: str) -> str:
    """Return why the server does not take a write, from the first word and the text of its error reply; empty if the
    reply has another meaning."""
    reason = _REFUSALS.get(code, "")
    return f"{reason} ({message.removeprefix(code).strip()})" if code == "MISCONF" else reason


def _major(facts: Mapping[str, object]) -> int:
    """Return the major version. A version that cannot be read counts as new enough."""
    number = re.match(r"\d+", str(facts.get("redis_version", "")))
    return int(number.group()) if number else OLDEST
