"""Keeps the Redis of one machine taking commands while the disk is full.

One rule: a Redis that cannot write its append-only file refuses every change, and then no job can be suspended and no
worker gets work. It only holds an index that is rebuilt from the cluster, so the file is given up while the disk is
full, and begun anew when there is room.
"""

import logging
from pathlib import Path

from embedded.apiserver.storage import disk_reserve
from embedded.redis import server

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_TRY_SECONDS = 30.0
"""Between two attempts to begin the file anew."""
_ROOM_BYTES = 16 * 1024 * 1024
"""What must be free before the file is begun anew."""


class Persistence:
    """Looks after one Redis. For one thread."""

    def __init__(self, url: str, folder: Path) -> None:
        """`folder` is the one that the Redis keeps its files in."""
        self._url = url
        self._folder = folder
        self._look_at = self._try_at = 0.0

    def step(self, now: float) -> None:
        """Look, if it is time; `now` is in seconds of any clock that does not go back. A Redis that does not answer is
        left alone."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        try:
            self._settle(now)
        except (OSError, ValueError) as e:
            logger.debug("the Redis at %s does not answer: %s", self._url, e)

    def _settle(self, now: float) -> None:
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
        """Whether the disk has room again: this user may be out of room although the disk is not."""
        draft = self._folder / ".room"
        try:
            disk_reserve.allocate(draft, _ROOM_BYTES)
        except OSError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        return True

    def _ask(self, *words: str) -> str:
        answer = server.ask(self._url, *words)
        if answer.startswith("-"):
            raise ValueError(answer)
        return answer
