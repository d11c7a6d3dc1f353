"""The SQL database that the settings name.

One rule: the URL is read again at each use, since its file may change.
"""

import threading

from coordinator.errors import SettingsError
from coordinator.history_settings import HistorySettings, history_url
from history.errors import NotReachable
from history.sql import sql_history
from history.sql.migrations import migrate as migrations
from history.sql.sql_history import SqlHistory
from history.store import HistoryStore

MISSING = (
    "no database is named for the history: set TORCHQ_HISTORY_URL, or put the URL into a file and name it with "
    "TORCHQ_HISTORY_URL_FILE"
)


def migrate(settings: HistorySettings) -> str:
    """Bring the tables to the form of this version, and return what was done, for people. Raises SettingsError and
    HistoryError."""
    return migrations.migrate(named_url(settings))


def named_url(settings: HistorySettings) -> str:
    """Return the URL of the database. Raises SettingsError if the settings name none."""
    if url := history_url(settings):
        return url
    raise SettingsError(MISSING)


class SqlStores:
    """Opens the database of a cluster, by the uid of kube-system. Any thread may use the object."""

    def __init__(self, settings: HistorySettings, cluster: str) -> None:
        self._settings = settings
        self._cluster = cluster
        self._lock = threading.Lock()
        self._shared: SqlHistory | None = None
        self._shared_url = ""

    def open(self) -> SqlHistory:
        """Return a store of the caller's own. Raises HistoryError."""
        return sql_history.open_history(self._url(), self._cluster)

    def shared(self) -> HistoryStore:
        """Return the store of all threads that only read, opened anew when the URL in its file has changed, or the
        file of SQLite. Raises HistoryError."""
        with self._lock:
            url = self._url()
            if self._shared is None or self._shared.is_replaced or url != self._shared_url:
                self._close()
                self._shared_url = url
                self._shared = sql_history.open_history(url, self._cluster, read_only=True)
            return self._shared

    def close(self) -> None:
        """Close the shared store."""
        with self._lock:
            self._close()

    def _url(self) -> str:
        try:
            return named_url(self._settings)
        except SettingsError as error:  # the file of the URL is being replaced
            raise NotReachable(str(error)) from None

    def _close(self) -> None:
        if self._shared is not None:
            self._shared.close()
        self._shared = None
