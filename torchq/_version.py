"""The version of torchq, and the number of the protocol between this package and the program `torchq`.

One rule: a release sets VERSION here and in pyproject.toml; a test holds both against each other. PROTOCOL rises with
a change that an earlier side would misunderstand.
"""

from __future__ import annotations

VERSION = "0.2.0"
PROTOCOL = 1
PROGRAM_PACKAGE = "torchq-coordinator"
"""The distribution that has the program `torchq`, and this package."""
CLIENT_PACKAGE = "torchq-client"
"""The distribution that has this package alone."""
