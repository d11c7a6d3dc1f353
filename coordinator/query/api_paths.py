"""The paths of the read-only APIs, and the answers about the history by path: for the recorder, and for commands that
read the database of this machine."""

from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, unquote, urlsplit

from coordinator.query import history_answers, queue_timeline
from coordinator.query.questions import UNKNOWN_PREFIX, Document, UnknownObject
from history.prices import Prices
from history.store import HistoryStore

KNOWN_PATHS = "try /v1/history, /v1/history/NAMESPACE/NAME, /v1/usage, /v1/timeline or /v1/openapi.json"


def parse(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the parts of a path, and its query."""
    found = urlsplit(text)
    query = {name: values[-1] for name, values in parse_qs(found.query).items()}
    return [unquote(part) for part in found.path.strip("/").split("/")], query


def answer_history(
    path: list[str],
    query: Mapping[str, str],
    store: Callable[[], HistoryStore],
    namespaces: frozenset[str] | None,
    now: int,
    prices: Prices,
    cost: str,
) -> Document:
    """Return the answer at a path about these namespaces; None: about all. Raises UnknownObject and HistoryError."""
    match path:
        case ["v1", "history"]:
            return history_answers.answer_jobs(store(), query, namespaces, now)
        case ["v1", "history", namespace, name]:
            return history_answers.answer_job(store(), namespace, name, query.get("uid", ""), now)
        case ["v1", "usage"]:
            return history_answers.answer_usage(store(), query, namespaces, now, prices, cost)
        case ["v1", "timeline"]:
            return queue_timeline.answer_timeline(store(), query, namespaces, now, cost)
    raise UnknownObject(f"{UNKNOWN_PREFIX}/{'/'.join(path)} here; {KNOWN_PATHS}")
