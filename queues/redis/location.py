"""Where Redis is: a URL, or a file that has it and that may change while the process runs.

One rule: text of a file that is no usable URL never takes the place of a URL that was usable.
"""

import logging
from pathlib import Path

from kube.process.meter import NO_METER, Meter
from queues import errors
from queues.redis import sentinel_url
from queues.redis import url as redis_url
from queues.redis.log_throttle import OutageLog
from queues.redis.sentinel import Master

log = logging.getLogger(__name__)


class Location:
    """The place of Redis for all clients of a process, which use the same server."""

    def __init__(self, url: str, file: str = "") -> None:
        """`file` is the file from which the URL was read; empty if the URL is set directly and does not change. `url`
        is empty if the file had no usable URL yet."""
        self.file = file
        self._url = url
        self.meter: Meter = NO_METER
        """What measures the scripts that clients of this place run."""
        self._outage = OutageLog(log)
        self.master = Master(self.url)

    @property
    def may_change(self) -> bool:
        """Whether another server may take over while the process runs."""
        return bool(self.file) or self.has_sentinels

    @property
    def has_sentinels(self) -> bool:
        """Whether sentinels name the server."""
        return self._url.partition("://")[0] in sentinel_url.SCHEMES

    @property
    def address(self) -> str:
        """The URL without its secrets, and the server that the sentinels have named last, for messages."""
        if not self._url:
            return f"the URL in {self.file}"
        server = f" (master {self.master.address})" if self.master.address else ""
        return redis_url.address(self._url) + server

    def url(self) -> str:
        """Return the URL. The file is read again; while it has no usable URL, return the last usable URL. Raises
        BadAddress if the file never had a usable URL."""
        if self.file:
            try:
                self._url = read(self.file)
                self._outage.report_recovery()
            except errors.BadAddress as error:
                if not self._url:
                    raise
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
