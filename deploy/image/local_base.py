"""A base image that is made on this machine, from Debian's packages, for machines without a registry.

One rule: debootstrap makes it and checks Debian's signatures; nothing else is added.
"""

import os
import shutil
import tempfile
from pathlib import Path

from deploy.image.builders import Builder, ImageError, run

NAME = "localhost/torchq-base:bookworm"
_SUITE = "bookworm"
"""Debian 12, which has Python 3.11."""
_PACKAGES = "python3,python3-venv,ca-certificates"
_CACHES = ("var/cache/apt", "var/lib/apt/lists")


def make(builder: Builder) -> None:
    """Make the image NAME. Raise ImageError if debootstrap is missing or fails."""
    reason = "debootstrap is not on PATH" if not shutil.which("debootstrap") else ""
    reason = reason or ("debootstrap needs root" if os.geteuid() != 0 else "")
    if reason:
        raise ImageError(
            f"BASE: none is given, and no Debian base can be made: {reason}. Give BASE=python:3.11-slim@sha256:DIGEST, "
            "or, as root on Debian, apt install debootstrap"
        )
    mirror = os.environ.get("DEBIAN_MIRROR")
    with tempfile.TemporaryDirectory(prefix="torchq-base-") as folder:
        system = Path(folder) / "system"
        source = [mirror] if mirror else []
        run(["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(system), *source])
        for cache in _CACHES:
            shutil.rmtree(system / cache)
            (system / cache).mkdir()
        builder.take(system, NAME)
