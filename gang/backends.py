"""Every gang scheduler there is, by the name that jobs and settings give it.

One rule: nothing but this table knows all of them.
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
    each.name: each for each in (NONE, Volcano(), Koordinator(), Coscheduling(), Native())
}
_BY_KIND: Mapping[Resource, Backend] = {
    each.resource: each for each in (*BACKENDS.values(), Native(ALPHA_POD_GROUPS)) if each.resource is not None
}
KINDS: tuple[Resource, ...] = tuple(_BY_KIND)
"""The kinds of pod groups; Kubernetes' own in two versions, of which a server has one."""


def of(name: str | None, serves: Callable[[Resource], bool] = lambda _: True) -> Backend:
    """The scheduler of a name; the one that binds nothing together if it is empty or unknown.

    `serves` says whether there is a kind; of Kubernetes' own only the version matters.
    """
    found = BACKENDS.get(name or NONE.name, NONE)
    alpha = found.resource == NATIVE_POD_GROUPS and not serves(NATIVE_POD_GROUPS) and serves(ALPHA_POD_GROUPS)
    return _BY_KIND[ALPHA_POD_GROUPS] if alpha else found


def of_kind(resource: Resource) -> Backend:
    """The scheduler whose gangs are of a kind. KeyError for any other kind."""
    return _BY_KIND[resource]
