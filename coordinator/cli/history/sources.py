"""Where the answers about the history come from: a recorder, or on one machine the database itself.

One rule: commands open the database of this machine for reading alone, so they need no process: the history can be read
while the cluster is down. On Kubernetes only the recorder opens the database.
"""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path

from coordinator import history_settings
from coordinator.cli import api_client, lazy_group
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.session import Session
from coordinator.errors import LocalError
from coordinator.history_settings import parse_prices
from coordinator.local import target
from coordinator.query import api_paths
from coordinator.query.questions import Document, parse_document
from coordinator.query.remote_queries import History
from crds import timestamps
from history.prices import Prices
from history.store import HistoryStore
from queues import rules

DATABASE = "history.sql.sql_history:open_history"
"""The door to the database; few commands wait for its library."""
DEFAULT_NAMESPACE = "default"
FRESH_SECONDS = 60
"""Commands say where a history ends that ended longer ago than this."""


def find(session: Session) -> History:
    """Return the source of the answers for an invocation."""
    data = session.target.data
    if data is None:
        return History(api_client.recorder(session))
    return own_history(partial(_opened, _url(session, data)), *_rules(session))


def own_history(opened: Callable[[], AbstractContextManager[HistoryStore]], prices: Prices, cost: str) -> History:
    """Return the history in the database of this machine, all of which its owner may read. The database is open during
    a question alone, because a dashboard asks for days."""

    def fetch(path: str, namespace: str = "") -> Document:  # noqa: ARG001
        parts, query = api_paths.parse(path)
        with opened() as store:
            return api_paths.answer_history(parts, query, lambda: store, None, int(time.time()), prices, cost)

    return History(fetch)


def _opened(url: str) -> AbstractContextManager[HistoryStore]:
    return closing(lazy_group.find(DATABASE)(url, "", read_only=True))


def recorded_until(session: Session, data: Path) -> str:
    """Say up to when the history of a local cluster that runs is recorded, or why nobody can read that."""
    nothing = "nothing is recorded yet"
    try:
        with _opened(_url(session, data)) as store:
            until = store.recorded_until()
    except USER_ERRORS as error:
        is_missing = isinstance(error, LocalError) and not (data / "history.sqlite").exists()
        return nothing if is_missing else str(error)
    missing = " only" if until < time.time() - FRESH_SECONDS else ""
    return f"up to {timestamps.format_time(until)}{missing}" if until else nothing


def namespace(session: Session) -> str:
    """Return the namespace of the jobs, also for a local cluster that is down."""
    is_down = session.target.data is not None and not session.target.runs
    return session.settings.namespace or DEFAULT_NAMESPACE if is_down else session.namespace


def _url(session: Session, data: Path) -> str:
    """Return the URL of the database of a local cluster. Raises LocalError if there is none, or it is another
    user's."""
    if own := history_settings.history_url(session.settings):
        return own
    file = data / "history.sqlite"
    try:
        file.stat()
        # A file that is opened and closed here would take from this process the locks of SQLite on the same file.
        if os.access(file, os.R_OK):
            return f"sqlite:///{file}"
        raise PermissionError
    except PermissionError:
        raise LocalError(
            f"the history of the local cluster in {data} can only be read by the user who runs that cluster"
        ) from None
    except OSError:
        status, up = (target.command(verb, data) for verb in ("status", "up"))
        remedy = f"`{status}` shows its recorder" if session.target.runs else f"it begins with the next `{up}`"
        raise LocalError(f"the local cluster in {data} has no history yet: {remedy}") from None


def _rules(session: Session) -> tuple[Prices, str]:
    """Return the prices, and what weights divide: the settings of the cluster if it runs, else those of this
    command."""
    own = session.settings
    if not session.target.runs:
        return own.price_table, own.cost
    try:
        told = parse_document(api_client.coordinator(session)("/v1/settings"))["settings"]
        return parse_prices(str(told.get("prices", ""))), str(told.get("cost", rules.DOMINANT))
    except (*USER_ERRORS, KeyError, AttributeError, ValueError):
        return own.price_table, own.cost
