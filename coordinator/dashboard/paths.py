"""The addresses of pages.

One rule: pure. Names come from users, so each is quoted as a whole.
"""

from collections.abc import Mapping
from urllib.parse import quote, urlencode


def of_queue(name: str) -> str:
    """Return the path of the page of a queue."""
    return f"/queues/{quote(name, safe='')}"


def of_job(full_name: str) -> str:
    """Return the path of the page of a job, by its namespace and name; empty for a job without a name."""
    namespace, slash, name = full_name.partition("/")
    return f"/jobs/{quote(namespace, safe='')}/{quote(name, safe='')}" if slash and name else ""


def with_query(path: str, query: Mapping[str, str]) -> str:
    """Return a path with those parts of a query that are not empty."""
    text = urlencode({name: value for name, value in query.items() if value})
    return f"{path}?{text}" if text else path
