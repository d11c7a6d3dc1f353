"""The version of torchq that this process runs.

One rule: the release is the version of the installed distribution, as pyproject.toml names it. The package that users
import repeats it (`torchq/_version.py`), since it may be installed alone.
"""

import functools
from importlib import metadata

DISTRIBUTION = "torchq-coordinator"
"""The name of the distribution; the command and the package are named torchq."""


@functools.cache
def version() -> str:
    """Return the version; empty if the package is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""
