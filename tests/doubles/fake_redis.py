"""A Redis in memory that reports facts of itself, as every server does on which a coordinator may lead."""

from typing import Any

import fakeredis


class FakeRedis(fakeredis.FakeStrictRedis):
    """A client of its own Redis in memory."""

    def __init__(self) -> None:
        super().__init__(server=fakeredis.FakeServer())

    def info(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return facts of a server on which a coordinator may lead."""
        return {"redis_version": "7.4.0"}
