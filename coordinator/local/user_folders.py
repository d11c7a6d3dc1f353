"""The folders of this user in which torchq keeps files.

One rule: the variables of the XDG base directories come first, then the home folder. A relative path in such a variable
counts as not set, as that specification says.
"""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from coordinator.errors import LocalError


def home(environ: Mapping[str, str]) -> Path | None:
    """Return the user's home folder: HOME, else the entry in the system's list of users; None if neither has a
    folder."""
    path = Path(environ.get("HOME", ""))
    if path.is_absolute():
        return path
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None


def default_data(environ: Mapping[str, str] | None = None) -> Path:
    """Return the data folder of the embedded cluster without `--data`. Raises LocalError if the user has no home
    folder."""
    path = _folder(os.environ if environ is None else environ, "XDG_STATE_HOME", Path(".local") / "state")
    if path is None:
        raise LocalError("this user has no home folder: name the folder of the cluster with --data, or set HOME")
    return path


def config(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of torchq's notes for this user; None if the user has no home folder."""
    return _folder(environ, "XDG_CONFIG_HOME", Path(".config"))


def _folder(environ: Mapping[str, str], variable: str, default: Path) -> Path | None:
    path = Path(environ.get(variable, ""))
    if path.is_absolute():
        return path / "torchq"
    base = home(environ)
    return None if base is None else base / default / "torchq"
