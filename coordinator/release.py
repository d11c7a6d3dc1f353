"""The release of torchq that this process runs: its version, and how its programs are started.

One rule: the release is the version of the installed distribution, as pyproject.toml names it. The package that users
import repeats it (`torchq/_version.py`), since it may be installed alone.
"""

import functools
import sys
from importlib import metadata

DISTRIBUTION = "torchq-coordinator"
"""The name of the distribution; the command and the package are named torchq."""
MODULE = (sys.executable, "-P", "-m")
"""The start of a command that runs a module of this release. -P: a file of the current folder, such as a user's
`history.py`, does not take the place of a module of torchq."""


@functools.cache
def version() -> str:
    """Return the version; empty if the package is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""
