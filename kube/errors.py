"""The errors of a Kubernetes client, one class for each possible reaction of the caller.

One rule: no error of the HTTP library or of the official client leaves this package.

    ClusterError
    ├── Unreachable        the server does not answer; retried before it is raised
    ├── Misconfigured      no usable kubeconfig, context or credentials
    ├── Unauthorized       401
    ├── Forbidden          403, names verb and resource
    ├── NotFound           404
    ├── Conflict           409, the object changed: observe again
    ├── AlreadyExists      409, the object exists already, perhaps from an earlier attempt
    ├── Expired            410, the resourceVersion is too old: list again
    ├── Invalid            400, 422: the object is wrong, by field
    ├── TooManyRequests    429 after all retries
    └── ServerError        5xx after all retries
"""

from dataclasses import dataclass


class ClusterError(Exception):
    """The Kubernetes API server refused or failed."""


class Unreachable(ClusterError):
    """The Kubernetes API server does not answer."""


class Misconfigured(ClusterError):
    """There is no usable Kubernetes configuration."""


class Unauthorized(ClusterError):
    """The Kubernetes API server does not accept these credentials."""


class Forbidden(ClusterError):
    """The account lacks the permission for this request."""


class NotFound(ClusterError):
    """There is no such object."""


class Conflict(ClusterError):
    """The object has changed since it was read."""


class AlreadyExists(ClusterError):
    """An object of that name exists."""


class Expired(ClusterError):
    """The requested resourceVersion is too old."""


class TooManyRequests(ClusterError):
    """The Kubernetes API server is overloaded and kept asking to retry later."""


class ServerError(ClusterError):
    """The Kubernetes API server failed."""


@dataclass(frozen=True, slots=True)
class FieldCause:
    """One error in an object: the path of the field, and the server's message about it."""

    field: str
    message: str


class Invalid(ClusterError):
    """The object is not valid."""

    def __init__(self, message: str, causes: tuple[FieldCause, ...] = ()) -> None:
        super().__init__(message)
        self.causes = causes
