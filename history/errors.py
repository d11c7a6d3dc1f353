"""The errors of the history.

One rule: no error of the database library leaves this package, and no message has a password.

    HistoryError
    ├── BadDatabase       the URL of the database cannot be used; the message says why
    ├── NotReachable      the database does not answer, is locked, full or read-only; the message says which
    ├── WrongSchema       the tables are older or newer than this version, or belong to another program
    ├── ForeignHistory    the database has the history of another cluster
    └── InvalidQuery      a question is wrong; the message begins with the name of the parameter, as in `tz: ...`
"""


class HistoryError(Exception):
    """The history cannot be read or written."""


class BadDatabase(HistoryError):
    """The URL of the database cannot be used."""


class NotReachable(HistoryError):
    """The database does not answer, or takes no writes."""


class WrongSchema(HistoryError):
    """The tables are not those of this version."""


class ForeignHistory(HistoryError):
    """The database has the history of another cluster."""


class InvalidQuery(HistoryError, ValueError):
    """A question about the history is wrong."""
