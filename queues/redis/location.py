"""Where Redis is: a URL, or a file that has it and that may change while the process runs.

One rule: text of a file that is no usable URL never takes the place of a URL that was usable.
"""

import logging
from pathlib import Path

from queues import errors
from queues.redis import url as redis_url
from queues.redis.log_throttle import OutageLog

log = logging.getLogger(__name__)


class Location:
    """The place of Redis for all clients of a process."""

    def __init__(self, url: str, file: str = "") -> None:
        """`file` is the file from which the URL was read; empty if the URL is set directly and does not change."""
        self.file = file
        self._url = url
        self._outage = OutageLog(log)

    def url(self) -> str:
        """Return the URL. The file is read again; while it has no usable URL, return the last one that it had."""
        if self.file:
            try:
                self._url = read(self.file)
                self._outage.report_recovery()
            except errors.BadAddress as error:
                self._outage.report_failure(error)
        return self._url


def read(file: str) -> str:
    """Return the URL in a file. Raises BadAddress, which names the file, if it has no usable URL."""
    try:
        url = Path(file).read_text().strip()
        redis_url.check(url)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise errors.BadAddress(f"the file of the Redis URL, {file}: {reason}") from None
    except errors.BadAddress as error:
        reason = str(error) if url else "it is empty"
        raise errors.BadAddress(f"the file of the Redis URL, {file}: {reason}") from None
    return url
