"""All gang schedulers, by the name that jobs and settings use.

One rule: only this table has all backends. Three types list the names as well, because schemas are made from them:
`crds.torchjob.jobspec.GangScheduler`, and the setting `gang_scheduler` of `coordinator.settings` and
`reconcilers.settings`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from crds.api_resources import ALPHA_POD_GROUPS, NATIVE_POD_GROUPS, Resource
from gang.backend import Backend
from gang.coscheduling import Coscheduling
from gang.koordinator import Koordinator
from gang.native import ALPHA, Native
from gang.volcano import Volcano

NONE = Backend(name="none", check="check that the scheduler of the pods runs", together=False)
BACKENDS: Mapping[str, Backend] = {
    backend.name: backend for backend in (NONE, Volcano(), Koordinator(), Coscheduling(), Native())
}
_BY_KIND: Mapping[Resource, Backend] = {
    backend.resource: backend for backend in (*BACKENDS.values(), ALPHA) if backend.resource is not None
}
KINDS: tuple[Resource, ...] = tuple(_BY_KIND)
"""The kinds of pod groups. Kubernetes' own kind is listed in two versions, of which a server has only one."""

QUEUES: tuple[Resource, ...] = tuple(backend.queues for backend in BACKENDS.values() if backend.queues is not None)
"""The kinds of the queues of gang schedulers."""


def get_backend(
    name: str | None, serves: Callable[[Resource], bool] = lambda _: True, coscheduler: str = "", preemptable: str = ""
) -> Backend:
    """Return the scheduler of a name; the scheduler that binds pods singly if the name is empty or unknown.

    `serves` tells whether the API server has a kind; the answer matters only for the version of Kubernetes' own kind.
    `coscheduler` is the schedulerName of the scheduler with the plugin coscheduling; empty if templates name the
    scheduler. `preemptable` says whether Volcano may preempt the pods, "true" or "false"; empty if the templates
    decide.
    """
    backend = BACKENDS.get(name or NONE.name, NONE)
    if isinstance(backend, Coscheduling):
        return replace(backend, scheduler=coscheduler)
    if isinstance(backend, Volcano):
        return replace(backend, preemptable=preemptable)
    alpha = backend.resource == NATIVE_POD_GROUPS and not serves(NATIVE_POD_GROUPS) and serves(ALPHA_POD_GROUPS)
    return _BY_KIND[ALPHA_POD_GROUPS] if alpha else backend


def get_backend_of_kind(resource: Resource) -> Backend:
    """Return the scheduler whose gangs are of a kind. Raises KeyError for any other kind."""
    return _BY_KIND[resource]
