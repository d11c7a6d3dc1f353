"""A Redis in memory that says what it is, as every server does that a coordinator may lead on."""

from typing import Any

import fakeredis


class FakeRedis(fakeredis.FakeStrictRedis):
    """A client of a Redis in memory of its own."""

    def __init__(self) -> None:
        super().__init__(server=fakeredis.FakeServer())

    def info(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return facts of a server that is fit."""
        return {"redis_version": "7.4.0"}
