"""The key by which processes refer to a TorchJob.

One rule: processes exchange only keys. A process that receives a key reads the job from the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """The identity of one TorchJob; the uid distinguishes it from an earlier job of the same name.

    Keys sort by namespace, name, uid, which breaks ties inside a queue.
    """

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}/{self.uid}"

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> "JobKey":
        """Return the key of a TorchJob as the API server stores it."""
        metadata = item["metadata"]
        return cls(metadata["namespace"], metadata["name"], metadata["uid"])

    @classmethod
    def parse(cls, text: str) -> "JobKey":
        """Return the key that ``namespace/name/uid`` stands for. Raise ValueError for any other text."""
        namespace, name, uid = text.split("/")
        return cls(namespace, name, uid)
