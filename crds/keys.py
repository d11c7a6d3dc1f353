"""The key by which processes refer to a TorchJob.

One rule: processes exchange only keys. A process that receives a key reads the job from the API server.
"""

from dataclasses import dataclass


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
    def parse(cls, text: str) -> "JobKey":
        """Return the key that ``namespace/name/uid`` stands for. Raise ValueError for any other text."""
        namespace, name, uid = text.split("/")
        return cls(namespace, name, uid)
