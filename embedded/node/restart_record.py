"""The last restart in place of each pod, on disk.

One rule: it is written before the first container is asked to end, so that a node that starts again goes on with it,
and does no restart twice.
"""

import json
from contextlib import suppress
from dataclasses import asdict

from embedded.layout import Layout
from embedded.node.runs import shim
from embedded.node.status.lifecycle import Restart

_FILE = "restart"


def read(layout: Layout, uid: str) -> Restart | None:
    """A pod's last restart; None if it had none."""
    with suppress(FileNotFoundError):
        return Restart(**json.loads((layout.pod(uid) / _FILE).read_bytes()))
    return None


def write(layout: Layout, uid: str, restart: Restart) -> None:
    """Put it on record, whole or not at all. OSError."""
    folder = layout.pod(uid)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    shim.write(str(folder), _FILE, json.dumps(asdict(restart)))
