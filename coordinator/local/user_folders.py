"""The folders of this user that torchq keeps things in.

One rule: found by the variables of the XDG base directories, then by the home folder; a relative path in a variable
counts as not set, as that specification says.
"""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from coordinator.errors import LocalError


def home(environ: Mapping[str, str]) -> Path | None:
    """The user's home folder: HOME, else what the system's list of users says; None if neither names one."""
    path = Path(environ.get("HOME", ""))
    if path.is_absolute():
        return path
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None


def default_data(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of the embedded cluster unless `--data` says otherwise. LocalError if the user has no home folder."""
    path = _folder(os.environ if environ is None else environ, "XDG_STATE_HOME", Path(".local") / "state")
    if path is None:
        raise LocalError("this user has no home folder: name the folder of the cluster with --data, or set HOME")
    return path


def config(environ: Mapping[str, str]) -> Path | None:
    """The folder of what torchq remembers for this user; None if the user has no home folder."""
    return _folder(environ, "XDG_CONFIG_HOME", Path(".config"))


def _folder(environ: Mapping[str, str], variable: str, default: Path) -> Path | None:
    path = Path(environ.get(variable, ""))
    if path.is_absolute():
        return path / "torchq"
    base = home(environ)
    return None if base is None else base / default / "torchq"
