"""Mutations: ways to break the product that the schedules must notice.

One rule: each mutation removes one requirement of the design, and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from coordinator.cache.watches import Watches
from coordinator.elastic import elastic_jobs
from coordinator.health.step_watch import Look
from coordinator.http import report_api
from coordinator.routing import growth_entries, held_charges, pod_charges, rebuilt_state
from crds.torchjob.torchjob import TorchJob
from queues.resizing.free_room import FreeRoom
from queues.resizing.search import Search
from queues.values import Account
from reconcilers import reconcile
from reconcilers.apply.apply import Application
from reconcilers.observe import Observer
from reconcilers.plan import backoff, failures, grown_memory, lifecycle, progress
from reconcilers.plan import plan as planning
from reconcilers.plan.elastic import change_steps
from reconcilers.plan.start_gates import StartGates
from reconcilers.pods import measure, task_members
from reconcilers.pods.grants import Grant
from reconcilers.values import DeleteObject, DeletePods, Plan, WriteStatus
from reconcilers.views.pod_group_view import GroupReader
from tests.doubles.memory_store import MemoryStore
from tests.doubles.memory_work import MemoryWork
from tests.faults import hunt
from tests.faults.schedules import Kind
from tests.faults.world import World

_take, _remove, _pods_of = rebuilt_state.compute, MemoryStore.remove, Watches.pods_of
_finish, _mark, _observe = MemoryWork.finish, MemoryWork.mark, Observer.observe
_plan, _faults = reconcile.plan, failures.find_faults
_finish_removal, _growth = change_steps.finish_removal, growth_entries.entry
_ask, _elastic, _grow_idle = Search._ask, elastic_jobs.of, MemoryStore._grow_idle
_advance, _recovery = planning.Advance, planning._recover


def _remove_at_once(store: MemoryStore, keys: Any, seen: int | None = None) -> Any:
    return _remove(store, keys)


def _nothing_occupies(watches: Watches, key: Any, seen: int) -> Any:
    return replace(_pods_of(watches, key, seen), occupy=False)


def _finish_for_good(work: MemoryWork, key: Any, token: str, **how: Any) -> None:
    record = work._record_of_lease(key, token)
    if record is not None:
        record.dirty = False
    _finish(work, key, token, **how)


def _mark_offers_only(work: MemoryWork, key: Any, tenant: str, *seen: int) -> None:
    if seen:
        _mark(work, key, tenant, *seen)


def _any_token(work: MemoryWork, key: Any, token: str) -> bool:
    return True


def _census_without_jobs(jobs: Any, *about: Any, **more: Any) -> Any:
    return _take([replace(job, admission=None) for job in jobs], *about, **more)


def _observe_carelessly(observer: Observer, task: Any) -> Any:
    return _observe(observer, replace(task, seen=0, failures=0))


def _sorted(first: Callable[[Any], bool]) -> Callable[..., Plan]:
    """Return a planner with the same actions in another order: the actions for which `first` holds come first."""

    def planned(*about: Any) -> Plan:
        found = _plan(*about)
        return replace(found, actions=tuple(sorted(found.actions, key=lambda action: not first(action))))

    return planned


def _faults_of_any_time(job: Any, pods: Any, *about: Any) -> Any:
    return _faults(job, [replace(pod, restart=job.status.restart_generation) for pod in pods], *about)


def _grown_at_once(run: Any, **about: Any) -> Any:
    """Advance a job with all the workers that its owner wants, under an admission with fewer workers."""
    wish = run.wanted.spec.worker_count
    if wish > (run.admission.workers or wish):
        grown = Grant(run.wanted, run.admission.model_copy(update={"workers": wish}))
        run = replace(run, job=grown.job, members=grown.members)
    return _advance(run=run, **about)


def _recover_victims(active: Any, *about: Any) -> Any:
    """Judge the ends of removed workers like the ends of other workers."""
    job, members = active.wanted, task_members.members(active.wanted, active.admission.attempt, range(4))
    return _recovery(replace(active, job=job, pods=(*active.pods, *active.removed), members=members), *about)


def _vacated_by_surplus(active: Any, *_: Any) -> Any:
    surplus = active.removed
    return lifecycle.DeletePodsFirst((*active.pods, *surplus)) if surplus else None


def _lower_at_once(job: Any) -> Any:
    """Write the smaller grant while the victims still exist."""
    return _finish_removal(replace(job, run=replace(job.run, removed=())))


def _census_without_growths(jobs: Any, pods: Any, *about: Any, **more: Any) -> Any:
    old = [pod for pod in pods if not pod.name.endswith(("-2", "-3"))]
    return _take([replace(job, admission=_ungrown(job.admission)) for job in jobs], old, *about, **more)


def _ungrown(admission: Any) -> Any:
    if admission is None or not admission.grown:
        return admission
    charge = {name: amount - 1000 * (name == "cpu") for name, amount in admission.charge.items()}
    return admission.model_copy(update={"charge": charge})


def _growth_of_the_job(job: Any, *about: Any) -> Any:
    found = _growth(job, *about)
    return None if found is None else replace(found, submitted=job.submitted)


def _ask_in_vain(search: Any, *about: Any) -> bool:
    _ask(search, *about)
    return True


def _rested(job: Any, circumstances: Any) -> Any:
    found = _elastic(job, circumstances)
    return None if found is None else replace(found, resting_until=0.0, idle_seconds=0.0)


def _grow_idle_for_credit(store: MemoryStore, growth: Any) -> Any:
    held, accounts = store._content.reservations.get(growth.key), store._content.accounts
    if held is not None:
        account = accounts.get(held.queue, Account())
        accounts[held.queue] = account._replace(base=account.base + growth.workers)
    return _grow_idle(store, growth)


def _free_beside_the_reservation(free: FreeRoom, name: str) -> int:
    return (free._room.capacity.get(name) or 0) - free._picker.pool.used.get(name, 0)


@dataclass(frozen=True, slots=True)
class Mutation:
    """The replacement of a function, and the scenarios and faults that reveal it."""

    where: Any
    what: str
    instead: Callable[..., Any]
    scenarios: tuple[str, ...]
    faults: tuple[Kind, ...]
    shuffled: bool = False
    """Whether only a shuffled order reveals the mutation."""


MUTATIONS: dict[str, Mutation] = {
    "workers do not ask for the fence": Mutation(Application, "_fence", lambda _: None, ("life",), ("stop",)),
    "the fence knows no token and no epoch": Mutation(MemoryWork, "holds", _any_token, ("life",), ("stop",)),
    "a rebuild does not wait for the leases": Mutation(World, "sleep", lambda *_: None, ("quota",), ("flush",), True),
    "charges are freed while pods occupy": Mutation(
        Watches, "pods_of", _nothing_occupies, ("restart", "delete"), ("kill>",)
    ),
    "charges are freed while a worker is at the job": Mutation(
        MemoryStore, "remove", _remove_at_once, ("resume",), ("yield", "user"), True
    ),
    "commit does not mark the key as work": Mutation(MemoryWork, "mark", _mark_offers_only, ("quota",), ("kill>",)),
    "what is offered during a run is forgotten": Mutation(
        MemoryWork, "finish", _finish_for_good, ("restart", "quota"), ("yield",)
    ),
    "a rebuild forgets the admitted": Mutation(
        rebuilt_state, "compute", _census_without_jobs, ("quota",), ("kill>", "flush")
    ),
    "pods are believed whatever queue they name": Mutation(
        pod_charges, "counts", lambda *_: True, ("hostile",), ("kill>", "flush")
    ),
    "leases that end are not noticed": Mutation(MemoryWork, "_wake", lambda *_: None, ("life",), ("kill>",)),
    "workers trust their cache": Mutation(Observer, "observe", _observe_carelessly, ("life",), ("lag",), True),
    "gates are opened too early": Mutation(progress, "_may_start", lambda *_: True, ("gang", "gate"), ("yield",), True),
    "groups go before their pods": Mutation(
        reconcile, "plan", _sorted(lambda action: isinstance(action, DeleteObject)), ("gang",), ("kill>",)
    ),
    "what happened is counted after its pods are gone": Mutation(
        reconcile, "plan", _sorted(lambda action: isinstance(action, DeletePods)), ("restart",), ("kill>",)
    ),
    "the generation is written after the pods are marked": Mutation(
        reconcile, "plan", _sorted(lambda action: not isinstance(action, WriteStatus)), ("inplace",), ("kill>",)
    ),
    "pods count for what their templates ask for": Mutation(
        measure, "find_excess", lambda *_: None, ("added",), ("yield",)
    ),
    "what pods ask for is forgotten when their job is sent back": Mutation(
        TorchJob, "pod_measurements", property(lambda _: {}), ("added",), ("yield",)
    ),
    "what was set back is set back again": Mutation(
        failures, "find_faults", _faults_of_any_time, ("disrupted",), ("kill>",)
    ),
    "nobody backs off": Mutation(backoff, "remaining_pause", lambda *_: 0.0, ("backoff",), ("kill>",)),
    "workers are made before they are granted": Mutation(
        planning, "Advance", _grown_at_once, ("growwait",), ("yield",)
    ),
    "memory is not charged before a pod has it": Mutation(
        grown_memory, "find_uncharged", lambda _: None, ("oomfull",), ("yield",)
    ),
    "a charge is lowered while victims occupy": Mutation(
        change_steps, "finish_removal", _lower_at_once, ("shrink",), ("yield",)
    ),
    "a declined growth is kept": Mutation(
        held_charges, "find_surplus", lambda *_: None, ("growback",), ("yield",), True
    ),
    "a rebuild forgets a growth": Mutation(
        rebuilt_state, "compute", _census_without_growths, ("grow",), ("flush",), True
    ),
    "victims count as failures": Mutation(planning, "_recover", _recover_victims, ("shrinkdead",), ("yield",)),
    "a growth is as old as its job": Mutation(growth_entries, "entry", _growth_of_the_job, ("growlast",), ("yield",)),
    "a surplus pod vacates the job": Mutation(lifecycle, "_give_back", _vacated_by_surplus, ("shrink",), ("yield",)),
    "gates open one by one": Mutation(
        StartGates, "_is_complete", property(lambda _: True), ("grow",), ("yield",), True
    ),
    "jobs shrink for one that cannot fit": Mutation(Search, "_ask", _ask_in_vain, ("givenone",), ("yield",)),
    "jobs grow again at once": Mutation(elastic_jobs, "of", _rested, ("thrash",), ("yield",)),
    "idle growth pays credit": Mutation(MemoryStore, "_grow_idle", _grow_idle_for_credit, ("idlegrow",), ("yield",)),
    "idle growth ignores the reservation": Mutation(
        FreeRoom, "_free_of_pool", _free_beside_the_reservation, ("idlereserved",), ("yield",)
    ),
    "a job hangs by wall clock over a flush": Mutation(
        Look, "continues", lambda *_: True, ("hangflush",), ("flush",), True
    ),
    "the token of another job is taken": Mutation(
        report_api, "_is_token_of", lambda *_: True, ("hangforged",), ("yield",)
    ),
    "a group that the cache does not show is none": Mutation(
        GroupReader, "_list_uncached", lambda *_: [], ("staged",), ("lag", "yield"), True
    ),
}


def noticed(name: str, most: int) -> tuple[int, hunt.Failure | None]:
    """Return the number of schedules up to the first failure under a mutation, and the failure."""
    mutation = MUTATIONS[name]
    for scenario in mutation.scenarios:
        hunt.quiet(scenario)  # the quiet run is computed and cached without the mutation
    schedules = hunt.biting(mutation.scenarios, mutation.faults, in_order=not mutation.shuffled)
    with patch.object(mutation.where, mutation.what, mutation.instead):
        return hunt.first_broken(schedules, most)
