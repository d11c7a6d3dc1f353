"""The Python of the user who submits a run, which runs it on one machine.

One rule: the Python is the one that `python` means for the caller: that of an active environment, else the first on
PATH.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")
_PROGRAMS = ("python", "python3")


def find_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of the caller's `python`; empty if there is no `python`."""
    environments = (str(Path(environ[name]) / "bin") for name in _ENVIRONMENTS if environ.get(name))
    candidates = filter(None, (*environments, environ.get("PATH", "")))
    programs = (shutil.which(name, path=path) for path in candidates for name in _PROGRAMS)
    found = next(filter(None, programs), "")
    folder = str(Path(found).parent)
    return folder if found and _is_usable(folder) else ""


def _is_usable(folder: str) -> bool:
    """Return whether a folder can be on the PATH of a pod."""
    try:
        folder.encode()
    except UnicodeEncodeError:
        return False
    return folder.startswith("/") and ":" not in folder
