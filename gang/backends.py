"""All gang schedulers, by the name that jobs and settings use.

One rule: only this table names all schedulers.
"""

from collections.abc import Callable, Mapping

from crds.api_resources import ALPHA_POD_GROUPS, NATIVE_POD_GROUPS, Resource
from gang.backend import Backend
from gang.coscheduling import Coscheduling
from gang.koordinator import Koordinator
from gang.native import Native
from gang.single import Single
from gang.volcano import Volcano

NONE: Backend = Single()
BACKENDS: Mapping[str, Backend] = {
    backend.name: backend for backend in (NONE, Volcano(), Koordinator(), Coscheduling(), Native())
}
_BY_KIND: Mapping[Resource, Backend] = {
    backend.resource: backend
    for backend in (*BACKENDS.values(), Native(ALPHA_POD_GROUPS))
    if backend.resource is not None
}
KINDS: tuple[Resource, ...] = tuple(_BY_KIND)
"""The kinds of pod groups. Kubernetes' own kind is listed in two versions, of which a server has only one."""


def get_backend(name: str | None, serves: Callable[[Resource], bool] = lambda _: True) -> Backend:
    """Return the scheduler of a name; the one that binds pods singly if the name is empty or unknown.

    `serves` tells whether the API server has a kind; it matters only for the version of Kubernetes' own kind.
    """
    backend = BACKENDS.get(name or NONE.name, NONE)
    alpha = backend.resource == NATIVE_POD_GROUPS and not serves(NATIVE_POD_GROUPS) and serves(ALPHA_POD_GROUPS)
    return _BY_KIND[ALPHA_POD_GROUPS] if alpha else backend


def get_backend_of_kind(resource: Resource) -> Backend:
    """Return the scheduler whose gangs are of a kind. Raises KeyError for any other kind."""
    return _BY_KIND[resource]
