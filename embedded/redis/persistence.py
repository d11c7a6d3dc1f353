"""Lets the Redis of one machine accept commands while the disk is full.

One rule: a Redis that cannot write its append-only file refuses every change, and then no job can be suspended and no
worker gets work. The content of Redis is only an index, which can be rebuilt from the cluster. So the file is switched
off while the disk is full, and on again when there is space.
"""

import logging
from pathlib import Path

from embedded import preallocation
from embedded.redis import server_program

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_TRY_SECONDS = 30.0
"""The interval between two attempts to switch the file on."""
_ROOM_BYTES = 16 * 1024 * 1024
"""The free disk space that is required before the file is switched on."""


class Persistence:
    """The append-only file of one Redis. Not safe for several threads."""

    def __init__(self, url: str, folder: Path) -> None:
        """Watch the Redis at a URL that keeps its files in `folder`."""
        self._url = url
        self._folder = folder
        self._check_at = self._try_at = 0.0

    def step(self, now: float) -> None:
        """Switch the file off or on, if that is due and necessary. A Redis that does not answer is ignored.

        `now` is in seconds of any clock that does not go back.
        """
        if now < self._check_at:
            return
        self._check_at = now + LOOK_SECONDS
        try:
            self._switch(now)
        except (OSError, ValueError) as e:
            logger.debug("the Redis at %s does not answer: %s", self._url, e)

    def _switch(self, now: float) -> None:
        state = dict(line.split(":", 1) for line in self._ask("INFO", "persistence").splitlines() if ":" in line)
        writing = state.get("aof_enabled") == "1"
        if writing and state.get("aof_last_write_status") == "err":
            self._ask("CONFIG", "SET", "appendonly", "no")
            self._try_at = now + _TRY_SECONDS
            logger.warning("the disk of %s is full: Redis keeps nothing on disk until there is room", self._folder)
        elif not writing and now >= self._try_at:
            self._try_at = now + _TRY_SECONDS
            if self.has_room():
                self._ask("CONFIG", "SET", "appendonly", "yes")
                logger.warning("Redis keeps its append-only file again")

    def has_room(self) -> bool:
        """Return whether the disk has space again. The attempt to allocate it respects the user's quota, too."""
        draft = self._folder / ".room"
        try:
            preallocation.allocate(draft, _ROOM_BYTES)
        except OSError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        return True

    def _ask(self, *arguments: str) -> str:
        answer = server_program.ask(self._url, *arguments)
        if answer.startswith("-"):
            raise ValueError(answer)
        return answer
