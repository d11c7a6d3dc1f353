"""The token with which the pods of a job report, and the key of the installation from which it is made.

One rule: neither a key nor a token is ever logged, stored in Redis or written into a message.

A token is `UID.CODE`: the uid of the job, and an HMAC of it with the key. So a token names its job, and
only the owner of the key can make a token.
"""

import hashlib
import hmac
from dataclasses import dataclass, field

from coordinator.access import key_files

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
    secret = key_files.read("report_key_file", path) if path else None
    return None if secret is None else ReportKey(secret)
