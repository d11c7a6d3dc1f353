"""The Python of the user who submits a run, which runs it on one machine.

One rule: it is the one that `python` means for the caller: of an active environment, else the first on PATH.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")
_PROGRAMS = ("python", "python3")


def find_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of the caller's `python`; empty if there is none."""
    for variable in _ENVIRONMENTS:
        folder = Path(environ.get(variable) or "/nonexistent") / "bin"
        if folder.is_absolute() and _find(str(folder)):
            return str(folder)
    found = _find(environ.get("PATH", ""))
    return str(Path(found).parent) if found and Path(found).is_absolute() else ""


def _find(path: str) -> str | None:
    return next((found for name in _PROGRAMS if path and (found := shutil.which(name, path=path))), None)
