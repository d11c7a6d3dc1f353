"""The name a TorchJob travels under.

One rule: only keys cross processes. Whoever receives one reads the job afresh.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """One TorchJob, told apart from an earlier job of the same name by its uid.

    Sorts by namespace, name, uid, which is the tie-break inside a queue.
    """

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}/{self.uid}"

    @classmethod
    def parse(cls, text: str) -> "JobKey":
        """Read ``namespace/name/uid`` back; ValueError for anything else."""
        namespace, name, uid = text.split("/")
        return cls(namespace, name, uid)
