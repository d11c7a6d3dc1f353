"""The termination message of a main container: the result of the job, the count of the files of its model, and the mark
that its node leaves.

One rule: pure, over the text of a container, which may be any text. A view keeps only that a pod has a result, because
a result is larger than a view may be; its text is read once, when the job ends.

The result is the message {"torchq-result": VALUE} of rank 0, with any JSON value. The count {"torchq-model": COUNT}
stands beside the result, or alone. The mark is a line that a preStop hook appends (`reconcilers.pods.container_files`).
A kubelet runs that hook before it stops a container for any reason, and not when the container ends by itself. So the
mark shows that the container was asked to stop, where nothing else shows it: a probe has failed, or a volume has
exceeded its limit.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from crds.torchjob.status import MOST_RESULT
from crds.trained_models import ModelFiles
from kube.api import Manifest
from reconcilers.views import containers

KEY = "torchq-result"
MODEL_KEY = "torchq-model"
_BOTH = f"{KEY} {MODEL_KEY}"
_BEGIN, _MODEL_BEGIN = (f'{{"{key}":' for key in (KEY, MODEL_KEY))
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


def is_given(message: str) -> bool:
    """Return whether a termination message begins as a result or a count, which may be unreadable."""
    return message.startswith((_BEGIN, _MODEL_BEGIN))


def given(pod: Manifest) -> str:
    """Return the keys with which the main container of a pod has ended, `KEY` and `MODEL_KEY`, as one constant text. A
    result that mentions the second key may seem to have it."""
    message = _message(pod)
    if message.startswith(_MODEL_BEGIN):
        return MODEL_KEY
    if not message.startswith(_BEGIN):
        return ""
    return _BOTH if f'"{MODEL_KEY}":' in message else KEY


def read(pod: Manifest) -> str:
    """Return the result of a pod as compact JSON; empty if the pod has no result, or a result of more than
    `MOST_RESULT` bytes.
    """
    document = _document(pod)
    try:
        text = orjson.dumps(document[KEY]) if KEY in document else b""
    except ValueError:  # nested too deeply
        return ""
    return text.decode() if len(text) <= MOST_RESULT else ""


def read_model(pod: Manifest) -> ModelFiles | None:
    """Return the count of the files of a job's model; None if the pod has none that can be used."""
    try:
        return ModelFiles.model_validate(_document(pod)[MODEL_KEY])
    except (KeyError, ValidationError):
        return None


def _document(pod: Manifest) -> Mapping[str, Any]:
    """Return the parts of a message; empty if the message has other parts, or cannot be read."""
    message = _message(pod)
    try:
        document = orjson.loads(message) if is_given(message) else None
    except ValueError:  # not JSON
        return {}
    return document if isinstance(document, dict) and document.keys() <= {KEY, MODEL_KEY} else {}


def _message(pod: Manifest) -> str:
    return own_message(containers.main_state(pod).get("terminated") or {})
