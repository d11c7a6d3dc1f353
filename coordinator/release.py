"""The version of torchq that this process runs.

One rule: it is the version of the installed package, as pyproject.toml names it, and written nowhere else.
"""

import functools
from importlib import metadata


@functools.cache
def version() -> str:
    """Return the version; empty if the package is not installed."""
    try:
        return metadata.version("torchq")
    except metadata.PackageNotFoundError:
        return ""
