"""The files with secrets that processes of one installation share: how they are made and read.

One rule: a secret is never logged or written into a message, and only its owner may read a file that is made here.
"""

import os
from pathlib import Path

from coordinator.errors import SettingsError

LEAST_BYTES = 16
MOST_BYTES = 4096


def read(setting: str, path: str) -> bytes | None:
    """Return the secret in the file that a setting names; None if the file does not exist. Raises SettingsError for a
    file without a secret."""
    try:
        with open(path, "rb") as file:
            secret = file.read(MOST_BYTES + 1).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"setting {setting}: {path}: {error.strerror or error}") from None
    if not LEAST_BYTES <= len(secret) <= MOST_BYTES:
        raise SettingsError(f"setting {setting}: {path}: a key has {LEAST_BYTES} to {MOST_BYTES} bytes")
    return secret


def make(path: Path) -> None:
    """Make a file with a new secret that only this user can read, unless there is a file."""
    if path.exists():
        return
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(os.urandom(32).hex() + "\n")
    unfinished.replace(path)
