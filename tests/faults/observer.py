"""The observer: after every step, it checks the invariants from the cluster alone.

One rule: the observer shares no code with the product except for reading objects.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from crds.api_resources import POD_GROUPS, PODS, SCALE_INS, SCALE_OUTS, SERVICES, TENANT_QUEUES, TORCHJOBS
from kube.api import Manifest
from tests.faults.api import Api
from tests.faults.invariants import models
from tests.faults.invariants.facts import FactWatch
from tests.faults.invariants.idle_growth import IdleWatch
from tests.faults.invariants.sizes import SizeWatch, unrest
from tests.faults.invariants.story import Story
from tests.faults.places import Place
from tests.faults.readings import UNITS, Group, Job, Pod
from tests.faults.scenarios.scenario import NAMESPACE, Scenario


class Observer:
    """Checks the invariants of the cluster and of the store."""

    def __init__(self, api: Api, place: Place, scenario: Scenario, facts: FactWatch) -> None:
        self._facts = facts
        self._api, self._place, self._scenario = api, place, scenario
        self._read: dict[bytes, Any] = {}
        self._pool = _parsed(scenario.pool)
        self._in_place = scenario.settings.get("in_place", "recreate") != "recreate"
        self._made: Counter[tuple[str, str, int, int]] = Counter()
        self._failed: Counter[tuple[str, str, int, int]] = Counter()
        self._seen: dict[str, str] = {}
        self.interruptions: Counter[str] = Counter()
        """How often the owner interrupted a job, by uid. An interrupted job may start its pods again."""
        self._story = Story(requests=scenario.requests, tampered=scenario.tampered, interruptions=self.interruptions)
        self._sizes = SizeWatch(gentle=scenario.gentle)
        self._idle = IdleWatch()
        self._outcomes: dict[str, str] = {}
        """The last phase of each scale request, by name."""
        self._settled: set[str] = set()
        """The uids of the jobs that have reached the size with which they end."""
        self._reported: dict[str, set[tuple[int, ...]]] = {}
        """By job, its restarts in which a pod has reported (`_restarts`)."""
        self._blamed: dict[tuple[str, str, int, int], set[str]] = {}
        """The runs in which a pod was found to stand alone. The pod may be made again once in each run."""
        self._strangers: dict[tuple[str, str, str], str] = {}
        self.hurried = False
        """Whether a fault let the owner take a step early."""
        self.is_lost = False
        """Whether the store has lost its data."""

    def problems(self, now: float, *, zombies: bool) -> list[str]:
        """Return the violated invariants, in messages that do not change while the violation lasts.

        With `zombies`, pods that were made twice or too early are no violation: their creation cannot be undone, and
        such pods can only be deleted.
        """
        jobs = {each.uid: self._job(each.raw) for each in self._api.objects(TORCHJOBS)}
        self._outcomes |= {each["metadata"]["name"]: _phase(each) for each in self._requests()}
        pods = self._pods()
        by_job: dict[str, list[Pod]] = {}
        for pod in pods:
            by_job.setdefault(pod.job, []).append(pod)
        found = [*self._mixed(jobs, by_job), *self._overdrawn(jobs, by_job), *self._hasty(jobs, by_job)]
        found += self._story.problems(jobs, pods, self._groups())
        is_excused = self.hurried or (self.is_lost and self._scenario.is_remembered)
        if not is_excused and self._scenario.never(
            {each.name: each.manifest() for each in self._api.objects(TORCHJOBS)}
        ):
            found.append("what must never be is so")
        found += self._sizes.problems(jobs, pods, now, excused=zombies)
        found += self._idle.problems(jobs, pods)
        found += self._unreported(jobs)
        found += models.problems(self._api)
        found += self._facts.doubled()
        found += [] if zombies else self._early(jobs, pods)
        found += [] if zombies else self._doubled(pods)
        if self._place.epoch():
            found += self._uncharged(by_job)
        return found

    def reported(self, uid: str) -> None:
        """Record that a pod of a job has reported."""
        job = next(self._job(each.raw) for each in self._api.objects(TORCHJOBS) if each.uid == uid)
        self._reported.setdefault(uid, set()).add(_restarts(job))

    def _unreported(self, jobs: Mapping[str, Job]) -> Iterator[str]:
        """Yield jobs that were found to hang although no pod has reported since their last restart."""
        for uid, job in jobs.items():
            hang = job.status.get("hang") or {}
            if hang.get("blamed"):
                mark = (uid, hang["blamed"], int(job.status["attempt"]), job.generation)
                self._blamed.setdefault(mark, set()).add(hang["run"])
            if hang and _restarts(job) not in self._reported.get(uid, ()):
                yield f"job {job.name} hangs without a report since its last restart"

    def has_its_size(self, uid: str) -> bool:
        """Return whether a job has reached the size with which it ends."""
        if uid not in self._settled:
            job = next(self._job(each.raw) for each in self._api.objects(TORCHJOBS) if each.uid == uid)
            if job.name not in self._scenario.sizes or not self._unrest(uid, job):
                self._settled.add(uid)
        return uid in self._settled

    def _unrest(self, uid: str, job: Job) -> list[str]:
        """Return the changes under way in the number of workers of a job, in the cluster and in the store."""
        size, pods = self._scenario.sizes[job.name], [pod for pod in self._pods() if pod.job == uid]
        idle = self._scenario.idle.get(job.name, 0)
        size, wish = (size + job.sizes.idle, size) if idle is None else (size, size - idle)
        found = unrest(job, pods, size, wish)
        held = next((charge for key, charge in self._place.reservations().items() if key.uid == uid), None)
        if held is None or (held.grown, dict(held.charge)) != (job.sizes.grown, job.admission.get("charge")):
            found.append(f"job {job.name} is charged {held and dict(held.charge)}, not what its admission says")
        left = [each["metadata"]["name"] for each in self._requests()]
        found += [f"scale request {name} is under way" for name in left]
        if job.sizes.wish == wish and any(key.uid == uid for key in self._place.growths()):
            found.append(f"job {job.name} waits for workers that it does not want")
        return found

    def remains(self) -> list[str]:
        """Return the differences from the scenario's expected end, without the objects that remain in the cluster."""
        jobs = {each.name: self._job(each.raw) for each in self._api.objects(TORCHJOBS)}
        found = [f"kept in the store: {each}" for each in self._place.remains()]
        for name in self._scenario.jobs:
            wanted, job = self._scenario.ends.get(name, "gone"), jobs.get(name)
            phase = job.phase if job else "gone"
            if phase != wanted:
                found.append(f"job {name} is {phase or 'new'}, should be {wanted}")
            restarts = job.status.get("restartCount", 0) if job else 0
            expected = self._scenario.restarts.get(name, 0) if job else 0
            if restarts != expected:
                found.append(f"job {name} counts {restarts} restarts, should be {expected}")
            found += self._disrupted(name, job)
            if job and job.sizes.scaling and phase == wanted:
                found.append(f"job {name} is over and still being scaled")
            if job and not job.finished and name in self._scenario.sizes:
                found += self._unrest(next(each.uid for each in self._api.objects(TORCHJOBS) if each.name == name), job)
        for name, phase in self._scenario.outcomes.items():
            if phase and self._outcomes.get(name, phase) != phase:
                found.append(f"scale request {name} is {self._outcomes[name]}, should be {phase}")
        return [*found, *(f"group {each.name} is left of a job that is over" for each in self._groups()), *self._lost()]

    def uncounted(self) -> list[str]:
        """Return the facts that no worker has counted."""
        return list(self._facts.missing())

    def _disrupted(self, name: str, job: Job | None) -> Iterator[str]:
        disruptions = job.counts[1] if job else 0
        expected = self._scenario.disruptions.get(name, 0) if job else 0
        if expected is not None and disruptions != expected and not (self.hurried and disruptions < expected):
            yield f"job {name} counts {disruptions} disruptions, should be {expected}"

    def _requests(self) -> list[Manifest]:
        """Return the scale requests. The requests of scenarios are deleted as soon as they are over."""
        return [each.manifest() for kind in (SCALE_OUTS, SCALE_INS) for each in self._api.objects(kind)]

    def remember_strangers(self) -> None:
        """Record the current pods and groups without an owner: they belong to no job and must not be deleted."""
        self._strangers = self._unowned()

    def _unowned(self) -> dict[tuple[str, str, str], str]:
        kinds = ((PODS, self._api.objects(PODS)), (POD_GROUPS, self._api.objects(POD_GROUPS)))
        return {
            (resource.kind, each.namespace, each.name): each.uid
            for resource, objects in kinds
            for each in objects
            if not each.deleting and b'"ownerReferences"' not in each.raw
        }

    def _lost(self) -> Iterator[str]:
        there = self._unowned()
        for (kind, namespace, name), uid in self._strangers.items():
            if there.get((kind, namespace, name)) != uid:
                yield f"{kind} {namespace}/{name}, which is no job's, was deleted"

    def left(self) -> list[str]:
        """Return descriptions of all pods and services of jobs in the cluster."""
        found = [f"{each.job_name}: pod {each.name} {each.phase}" for each in self._pods()]
        return sorted(found + [f"service {each.name}" for each in self._api.objects(SERVICES)])

    def _pods(self) -> list[Pod]:
        return [self._pod(each.raw) for each in self._api.objects(PODS) if each.namespace == NAMESPACE]

    def _groups(self) -> list[Group]:
        """Return the pod groups of jobs."""
        found = []
        for each in self._api.objects(POD_GROUPS):
            group = self._read.get(each.raw)
            if group is None:
                group = self._read[each.raw] = Group(each.raw)
            if group.job:
                found.append(group)
        return found

    def _job(self, raw: bytes) -> Job:
        found = self._read.get(raw)
        if found is None:
            found = self._read[raw] = Job(raw)
        return found  # type: ignore[no-any-return]

    def _limits(self, raw: bytes) -> tuple[str, Mapping[str, int]]:
        """Return the cohort and the quota of a queue."""
        found = self._read.get(raw)
        if found is None:
            spec = orjson.loads(raw)["spec"]
            quota = {name: int(most) * UNITS.get(name, 1) for name, most in (spec.get("quota") or {}).items()}
            found = self._read[raw] = spec.get("cohort", ""), quota
        return found  # type: ignore[no-any-return]

    def _pod(self, raw: bytes) -> Pod:
        found = self._read.get(raw)
        if found is None:
            found = self._read[raw] = Pod(raw)
        return found  # type: ignore[no-any-return]

    def _mixed(self, jobs: Mapping[str, Job], by_job: Mapping[str, list[Pod]]) -> Iterator[str]:
        """Yield jobs whose running pods belong to different attempts, or to different restarts of the whole job."""
        for uid, pods in by_job.items():
            whole = (uid not in jobs or jobs[uid].whole) and not self._in_place
            running = {(pod.attempt, pod.restart if whole else 0) for pod in pods if pod.phase == "Running"}
            if len(running) > 1:
                yield f"pods of {pods[0].job_name} run from different attempts or restarts: {sorted(running)}"

    def _overdrawn(self, jobs: Mapping[str, Job], by_job: Mapping[str, list[Pod]]) -> Iterator[str]:
        """Yield exceeded quotas, an exceeded pool, and ports in double use, computed from the cluster."""
        usage: dict[str, Counter[str]] = {}
        ports: Counter[int] = Counter()
        for uid in sorted(jobs.keys() | by_job.keys()):
            job, occupying = jobs.get(uid), [pod for pod in by_job.get(uid, ()) if pod.occupies]
            admission = job.admission if job else {}
            share = sum((pod.charge for pod in occupying), Counter({"jobs": 1}))
            if admission and (occupying or (job and not job.finished)):
                charge = Counter(admission["charge"])
                taken = charge if self._unmeasured(share - charge) else share | charge
                usage.setdefault(admission["queue"], Counter()).update(taken)
                ports.update([admission.get("port", 0)])
            elif occupying:
                usage.setdefault(occupying[0].queue, Counter()).update(share)
        total = sum(usage.values(), Counter())
        yield from self._over_quota(usage)
        yield from (f"the pool has less {name} than is used" for name, most in self._pool.items() if total[name] > most)
        yield from (f"two jobs have port {port}" for port, count in ports.items() if port and count > 1)

    def _over_quota(self, usage: Mapping[str, Counter[str]]) -> Iterator[str]:
        """Yield exceeded quotas. The queues of a cohort share their quotas."""
        limits: dict[str, Counter[str]] = {}
        used: dict[str, Counter[str]] = {}
        for each in self._api.objects(TENANT_QUEUES):
            cohort, quota = self._limits(each.raw)
            name = f"cohort {cohort}" if cohort else f"queue {each.name}"
            limits.setdefault(name, Counter()).update(quota)
            used.setdefault(name, Counter()).update(usage.get(each.name, Counter()))
        for name, quota in limits.items():
            yield from (f"{name} uses more {what} than its quota" for what in quota if used[name][what] > quota[what])

    def _unmeasured(self, excess: Counter[str]) -> bool:
        """Return whether pods exceed the charge only by requests that the API server adds.

        Such requests are unknown before the first pod of a task exists. `_hasty` limits the number of these pods.
        """
        return bool(excess) and excess.keys() <= self._scenario.adds.keys()

    def _hasty(self, jobs: Mapping[str, Job], by_job: Mapping[str, list[Pod]]) -> Iterator[str]:
        """Yield jobs that made a second pod of a task before they were charged for the first pod."""
        for uid, job in jobs.items():
            pods = [pod for pod in by_job.get(uid, ()) if pod.occupies]
            share = sum((pod.charge for pod in pods), Counter({"jobs": 1}))
            excess = share - Counter((job.admission or {}).get("charge", {}))
            made = Counter(pod.task for pod in pods)
            if job.admission and self._unmeasured(excess) and max(made.values()) > 1:
                yield f"job {job.name} has made more pods than those that it is charged for"

    def _uncharged(self, by_job: Mapping[str, list[Pod]]) -> Iterator[str]:
        """Yield jobs whose pods use room without a charge."""
        held = {key.uid: charge.charge for key, charge in self._place.reservations().items()}
        for uid, pods in by_job.items():
            share = sum((pod.charge for pod in pods if pod.occupies), Counter[str]())
            if share and uid not in held:
                yield f"pods of {pods[0].job_name} occupy without a charge"
            elif excess := share - Counter(held.get(uid, {})):
                yield from () if self._unmeasured(excess) else (f"pods of {pods[0].job_name} exceed its charge",)

    def _early(self, jobs: Mapping[str, Job], pods: list[Pod]) -> Iterator[str]:
        """Yield new pods of jobs that are backing off. Times are UTC texts of whole seconds, whose order as texts is
        their order in time.
        """
        for pod in pods:
            job = jobs.get(pod.job)
            if pod.uid in self._seen or job is None or pod.attempt != job.status.get("attempt"):
                continue
            if pod.made < job.not_before and (not job.backing_off or pod.name in job.backing_off):
                yield f"pod {pod.name} was made at {pod.made}, its job backs off until {job.not_before}"

    def _doubled(self, pods: list[Pod]) -> Iterator[str]:
        """Yield pods that repeat the work of an earlier pod without a failure or an interruption."""
        for pod in pods:
            mark = (pod.job, pod.name, pod.attempt, pod.restart)
            before = self._seen.get(pod.uid)
            if before is None:
                self._made[mark] += 1
            if pod.end == "Failed" and before != "Failed":
                self._failed[mark] += 1
            self._seen[pod.uid] = pod.end or before or ""
        removed = self._sizes.removals
        for (job, name, attempt, restart), made in self._made.items():
            mark = (job, name, attempt, restart)
            again = self._failed[mark] + removed[mark] + len(self._blamed.get(mark, ())) + self.interruptions[job]
            if made > 1 + again:
                yield f"pod {name} was made {made} times in attempt {attempt}, restart {restart}"


def _restarts(job: Job) -> tuple[int, ...]:
    """Return how often a job was admitted and restarted."""
    return (int(job.status.get("attempt", 0)), job.generation, *job.counts)


def _phase(request: Manifest) -> str:
    return str((request.get("status") or {}).get("phase", ""))


def _parsed(pool: str) -> dict[str, int]:
    if pool in ("none", "nodes"):
        return {}
    pairs = (each.split("=") for each in pool.split(","))
    return {name: int(amount) * UNITS.get(name, 1) for name, amount in pairs}
