"""The token with which the pods of a job report, and the key of the installation from which it is made.

One rule: neither a key nor a token is ever logged, stored in Redis or written into a message.

A token is `UID.CODE`: the uid of the job, and an HMAC of it with the key. So a token names its job, and
only the owner of the key can make a token.
"""

import hashlib
import hmac
import os
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.errors import SettingsError

LEAST_KEY = 16
"""The least number of bytes of a key."""
MOST_KEY = 4096
_PURPOSE = b"torchq report token of job "


@dataclass(frozen=True, slots=True)
class ReportKey:
    """The key of an installation."""

    secret: bytes = field(repr=False)

    def token(self, uid: str) -> str:
        """Return the token of the job with this uid."""
        return f"{uid}.{hmac.new(self.secret, _PURPOSE + uid.encode(), hashlib.sha256).hexdigest()}"

    def uid(self, token: str) -> str | None:
        """Return the uid of the job for which a token was made with this key; None for any other text."""
        uid, _, _ = token.partition(".")
        return uid if hmac.compare_digest(self.token(uid).encode(), token.encode()) else None


def read(path: str) -> ReportKey | None:
    """Return the key in a file; None if no file is named or the file does not exist. Raises SettingsError for a file
    without a key.
    """
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            secret = file.read(MOST_KEY + 1).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"setting report_key_file: {path}: {error.strerror or error}") from None
    if not LEAST_KEY <= len(secret) <= MOST_KEY:
        raise SettingsError(f"setting report_key_file: {path}: a key has {LEAST_KEY} to {MOST_KEY} bytes")
    return ReportKey(secret)


def make_file(path: Path) -> None:
    """Make a file with a new key that only this user can read, unless there is a file."""
    if path.exists():
        return
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(os.urandom(32).hex() + "\n")
    unfinished.replace(path)
