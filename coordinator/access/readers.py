"""Who asks a coordinator, by the jobs that they may read.

A reader shows a token in a header of torchq's own: the proxy of an API server drops Authorization and passes other
headers on. The token is one of a ServiceAccount, for the audience `torchq`: no API server takes it for a request.
"""

from dataclasses import dataclass

HEADER = "Torchq-Token"
AUDIENCE = "torchq"
ACCOUNT = "torchq-user"
"""The account of a namespace with whose token its users ask."""
READER_ACCOUNT = "torchq-reader"
"""The account, in the namespace of the coordinators' Service, that may list the TorchJobs of all namespaces."""
TOKEN_SECONDS = 600
"""How long a token is valid: the shortest time that API servers allow."""


@dataclass(frozen=True, slots=True)
class Reader:
    """An account, by the namespaces whose TorchJobs it may list."""

    everywhere: bool = False
    namespaces: frozenset[str] = frozenset()
    job: str = ""
    """The uid of the only job whose reports the reader may see, if a pod of the job asks with its token."""

    def may_read(self, namespace: str) -> bool:
        """Return whether the account may list the TorchJobs of a namespace."""
        return self.everywhere or namespace in self.namespaces


NOBODY = Reader()
"""Who has shown no token."""
EVERYWHERE = Reader(everywhere=True)
