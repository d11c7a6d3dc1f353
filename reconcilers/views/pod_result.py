"""The result that a job gives: the termination message {"torchq-result": {...}} of the main container of its rank 0.

One rule: pure, over what a container wrote, which may be anything. A view keeps only that a pod has a result, because a
result is larger than a view may be; its text is read once, when the job ends.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from crds.torchjob.status import MOST_RESULT
from kube.api import Manifest
from reconcilers.views import pod_outcome

KEY = "torchq-result"
_BEGIN = f'{{"{KEY}":'
FILE_VARIABLE = "TORCHQ_RESULT_FILE"
"""The variable of each container with the path of the file whose content becomes its termination message."""


def is_result(message: str) -> bool:
    """Return whether a termination message says that it is a result; it may be an unreadable one."""
    return message.startswith(_BEGIN)


def is_there(pod: Manifest, phase: str) -> bool:
    """Return whether the main container of a pod in a phase has ended with a result."""
    return phase in pod_outcome.FINISHED and is_result(_message(pod))


def read(pod: Manifest) -> str:
    """Return the result of a pod as compact JSON; empty if it has none, or one that is not an object of at most
    `MOST_RESULT` bytes."""
    message = _message(pod)
    try:
        document = orjson.loads(message) if is_result(message) else None
        if not isinstance(document, dict) or document.keys() != {KEY} or not isinstance(document[KEY], dict):
            return ""
        text = orjson.dumps(document[KEY])
    except ValueError:  # not JSON, or JSON that is nested too deeply
        return ""
    return text.decode() if len(text) <= MOST_RESULT else ""


def _message(pod: Manifest) -> str:
    terminated: Mapping[str, Any] = pod_outcome.main_state(pod).get("terminated") or {}
    return str(terminated.get("message") or "")
