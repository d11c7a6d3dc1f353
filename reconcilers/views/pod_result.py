"""The termination message of a main container: the result of the job, and the mark that its node leaves.

One rule: pure, over the text of a container, which may be any text. A view keeps only that a pod has a result, because
a result is larger than a view may be; its text is read once, when the job ends.

The result is the message {"torchq-result": VALUE} of rank 0, with any JSON value. The mark is a line that a preStop
hook appends (`reconcilers.pods.container_files`). A kubelet runs that hook before it stops a container for any reason,
and not when the container ends by itself. So the mark shows that the container was asked to stop, where nothing else
shows it: a probe has failed, or a volume has exceeded its limit.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from crds.torchjob.status import MOST_RESULT
from kube.api import Manifest
from reconcilers.views import containers

KEY = "torchq-result"
_BEGIN = f'{{"{KEY}":'
FILE_VARIABLE = "TORCHQ_RESULT_FILE"
"""The variable of each container with the path of the file whose content becomes its termination message."""


MARK = "torchq: stopped"
"""The line that the hook appends. `torchq.result` keeps it when it replaces the message."""


def is_marked(terminated: Mapping[str, Any]) -> bool:
    """Return whether a container was asked to stop before it ended, by its termination."""
    return MARK in str(terminated.get("message") or "").splitlines()


def own_message(terminated: Mapping[str, Any]) -> str:
    """Return the termination message of a container without the mark."""
    message = str(terminated.get("message") or "")
    if MARK not in message:
        return message
    return "\n".join(line for line in message.splitlines() if line != MARK).strip("\n")


def is_result(message: str) -> bool:
    """Return whether a termination message says that it is a result, which may be unreadable."""
    return message.startswith(_BEGIN)


def is_there(pod: Manifest) -> bool:
    """Return whether the main container of a pod has ended with a result."""
    return is_result(_message(pod))


def read(pod: Manifest) -> str:
    """Return the result of a pod as compact JSON; empty if the pod has no result, or a result of more than
    `MOST_RESULT` bytes.
    """
    message = _message(pod)
    try:
        document = orjson.loads(message) if is_result(message) else None
        if not isinstance(document, dict) or document.keys() != {KEY}:
            return ""
        text = orjson.dumps(document[KEY])
    except ValueError:  # not JSON, or JSON that is nested too deeply
        return ""
    return text.decode() if len(text) <= MOST_RESULT else ""


def _message(pod: Manifest) -> str:
    return own_message(containers.main_state(pod).get("terminated") or {})
