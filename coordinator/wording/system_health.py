"""The health of the whole system as one document and as facts, for `torchq status` and `torchq top`.

One rule: the same document is printed for programs.
"""

from collections import Counter
from datetime import datetime

from coordinator.lease_settings import VERSION_ANNOTATION
from coordinator.query.questions import Document
from coordinator.wording import ages
from kube.api import Manifest

SILENT_SECONDS = 30.0
"""The age of a Lease at which its holder is no longer named as the leader."""


def leader_of(lease: Manifest, now: datetime) -> Document:
    """Return the leader as its Lease names it."""
    spec = lease.get("spec") or {}
    silent = ages.seconds_since(spec.get("renewTime"), now)
    alive = silent is not None and silent < SILENT_SECONDS
    holder = str(spec.get("holderIdentity") or "") if alive else ""
    version = str((lease["metadata"].get("annotations") or {}).get(VERSION_ANNOTATION, "")) if holder else ""
    return {"apiServer": "", "leader": holder, "leaderVersion": version, "renewedSecondsAgo": silent}


def summarize(lease: Document, numbers: Document, rates: Document) -> Document:
    """Return Lease, numbers and rates in one document; `trouble` maps the name of each failing part to its problem."""
    leader = lease.get("leader", numbers.get("leader", ""))
    workers = numbers.get("workers")
    trouble = {
        "API server": lease["apiServer"],
        "queues": numbers.get("redis", ""),
        "coordinator": numbers.get("failing", "") or ("" if leader else "no coordinator leads"),
        "workers": "; ".join((*["no worker is alive"] * (workers == {}), *numbers.get("idleWorkers", ()))),
    }
    figures = {name: value for name, value in numbers.items() if name not in ("redis", "failing", "leader")}
    return {
        "leader": leader,
        "leaderVersion": lease.get("leaderVersion", ""),
        "renewedSecondsAgo": lease.get("renewedSecondsAgo"),
        **figures,
        "rates": rates,
        "trouble": {name: problem for name, problem in trouble.items() if problem},
    }


def rates(before: Document, after: Document) -> Document:
    """Return picks and reconciles per second between two readings. Readings of the same moment, or of different Redis
    servers, give no rates."""
    seconds = after.get("at", 0.0) - before.get("at", 0.0)
    counted = {name: after.get(name, 0) - before.get(name, 0) for name in ("picks", "reconciles")}
    if seconds <= 0 or any(count < 0 for count in counted.values()):
        return {}
    return {f"{name}PerSecond": round(count / seconds, 1) for name, count in counted.items()}


def facts(document: Document) -> list[tuple[str, object]]:
    """Return the health of the system, one fact per part. The title of a failing part ends with an exclamation mark."""
    lines: list[tuple[str, object]] = [("Cluster", document["cluster"])] if "cluster" in document else []
    lines += [("Leader", _leader(document)), ("Workers", _workers(document))]
    if "jobs" in document:
        lines.append(("Jobs", f"{document['jobs']['waiting']} waiting, {document['jobs']['admitted']} admitted"))
        lines.append(("Work", ", ".join(f"{count} {name}" for name, count in document["work"].items())))
    if document["rates"]:
        rate = document["rates"]
        lines.append(("Rates", f"{rate['picksPerSecond']} picks/s, {rate['reconcilesPerSecond']} reconciles/s"))
    if document.get("waits"):
        lines.append(("Waits", _waits(document["waits"])))
    for name in ("queues", "API server", "coordinator", "workers"):
        trouble = document["trouble"].get(name)
        if trouble or name in ("queues", "API server"):
            lines.append((f"{name[0].upper()}{name[1:]}" + "!" * bool(trouble), trouble or "ok"))
    return lines


def _leader(document: Document) -> str:
    names = {"epoch": document.get("epoch"), "version": document.get("leaderVersion")}
    known = ", ".join(f"{name} {value}" for name, value in names.items() if value)
    return f"{document['leader']}{f' ({known})' if known else ''}" if document["leader"] else "none"


def _workers(document: Document) -> str:
    workers = document.get("workers")
    if workers is None:
        return "unknown"
    versions = sorted(Counter(document.get("workerVersions", {}).values()).items())
    mixed = ", ".join(f"{count} of version {version or 'unknown'}" for version, count in versions)
    return f"{len(workers)} alive, {sum(workers.values())} threads" + (f" ({mixed})" if len(versions) > 1 else "")


def _waits(waits: Document) -> str:
    if not waits["admissions"]:
        return "nothing was admitted yet"
    middle, most = (ages.duration(waits[name]) for name in ("p50Seconds", "p95Seconds"))
    return f"p50 {middle}, p95 {most} of the last {waits['admissions']} first admissions"
