"""The history of jobs, and whether their pods ran in a permitted order.

One rule: the history is never forgotten, and a pod that started wrongly stays wrong as long as it runs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from tests.faults.readings import Group, Job, Pod


class Story:
    """The history of jobs, and whether their pods ran in a permitted order."""

    def __init__(self, *, requests: int, tampered: bool, interruptions: Mapping[str, int]) -> None:
        self._requests, self._tampered, self._interruptions = requests, tampered, interruptions
        self._ran: set[tuple[str, int, int, str, int]] = set()
        """The job, attempt, restart, task and index of each pod that has run."""
        self._done: set[tuple[str, int, str, int]] = set()
        """The job, attempt, task and index of each pod that has succeeded."""
        self._early: dict[tuple[str, int], str] = {}
        """The messages about pods that ran too early, by uid and restart."""
        self._bound: dict[tuple[str, int], set[str]] = {}
        """The uids of the pods that were bound with a group, by job and attempt."""
        self._counts: dict[str, tuple[int, ...]] = {}
        self._changes: dict[str, set[frozenset[str]]] = {}
        """The victims that each job with ranks has named."""
        self._late: dict[str, set[int]] = {}
        """The restart generations in which the pods of a job did not run in time, by job."""
        self._sizes: dict[tuple[str, int, str], frozenset[int]] = {}
        """The indexes that the pods of a task may have had, by job, attempt and task."""
        self._wrong: list[str] = []

    def problems(self, jobs: Mapping[str, Job], pods: list[Pod], groups: list[Group]) -> Iterator[str]:
        """Yield the messages about everything that is wrong now."""
        for uid, job in jobs.items():
            self._sized(uid, job)
        fresh = [pod for pod in pods if pod.job in jobs and self._has_begun(pod)]
        for pod in fresh:
            if not self._may_run(jobs[pod.job], pod):
                self._early[pod.uid, pod.restart] = f"pod {pod.name} runs before its upstreams, restart {pod.restart}"
        running = {(pod.uid, pod.restart) for pod in pods if pod.phase == "Running"}
        yield from (what for mark, what in self._early.items() if mark in running)
        for pod in pods:
            ever = self._sizes.get((pod.job, pod.attempt, pod.task), frozenset())
            if pod.job in jobs and pod.index not in ever | jobs[pod.job].tasks[pod.task].indexes:
                yield f"pod {pod.name} is beyond numTasks"
        yield from self._ganged(jobs, pods, groups)
        yield from self._alone(pods, groups)
        for uid, job in jobs.items():
            self._count(uid, job)
            if job.phase == "Succeeded" and not self._has_trained(uid, job):
                yield f"job {job.name} has succeeded, but no pod has that decides about it"
        yield from self._wrong

    def _sized(self, uid: str, job: Job) -> None:
        """Record which pods each task may have in an attempt. Pods from before a resize may still exist."""
        for name, task in job.tasks.items():
            mark = (uid, int(job.admission.get("attempt", 0)), name)
            self._sizes[mark] = task.indexes | self._sizes.get(mark, frozenset())

    def _has_begun(self, pod: Pod) -> bool:
        """Return whether the pod has begun since this restart and was not recorded before."""
        place = (pod.job, pod.attempt, pod.task, pod.index)
        if pod.end == "Succeeded":
            self._done.add(place)
        elif (
            pod.end == "Failed"
        ):  # this includes a pod that seemed to succeed until its node reported that it had been asked to end
            self._done.discard(place)
        mark = (pod.job, pod.attempt, pod.restart, pod.task, pod.index)
        if pod.phase not in ("Running", "Succeeded") or mark in self._ran:
            return False
        self._ran.add(mark)
        return True

    def _may_run(self, job: Job, pod: Pod) -> bool:
        has_run = Counter(task for uid, *when, task, _ in self._ran if (uid, *when) == _when(pod))
        return all(self._through(job, pod, each) for each in job.before(pod.task)) and all(
            has_run[each] >= job.tasks[each].least or self._through(job, pod, each)
            for each in job.tasks[pod.task].runs_after
        )

    def _has_trained(self, uid: str, job: Job) -> bool:
        """Return whether the master of a job has ended well by itself. In a job without a master, any pod counts."""
        ended = [task for name, attempt, task, _ in self._done if (name, attempt) == (uid, job.attempt)]
        return "master" in ended if "master" in job.tasks else bool(ended)

    def _through(self, job: Job, pod: Pod, task: str) -> bool:
        """Return whether all pods of a task have succeeded in the pod's attempt."""
        return self._succeeded(pod.job, pod.attempt, task) >= job.tasks[task].count

    def _succeeded(self, job: str, attempt: int, task: str) -> int:
        return sum(each[:3] == (job, attempt, task) for each in self._done)

    def _ganged(self, jobs: Mapping[str, Job], pods: list[Pod], groups: list[Group]) -> Iterator[str]:
        """Yield groups that demand too many pods, and groups whose pods were not bound together."""
        for pod in pods:
            if pod.group and pod.bound:
                self._bound.setdefault((pod.job, pod.attempt), set()).add(pod.uid)
        for group in groups:
            job = jobs.get(group.job)
            if job is None:
                continue
            most = sum(job.tasks[each].count for each in group.tasks) - _removed(job, group.job, pods)
            if group.least > most or any(least > job.tasks[each].count for each, least in group.tasks.items()):
                yield f"group {group.name} wants {group.least} pods, but there are {most} at most"
            for task in group.tasks:
                before = job.before(task)
                if any(self._succeeded(group.job, group.attempt, each) < job.tasks[each].count for each in before):
                    yield f"group {group.name} waits for task {task}, which may not begin yet"
            bound = sum(pod.group == group.name and pod.bound and pod.attempt == group.attempt for pod in pods)
            ever = len(self._bound.get((group.job, group.attempt), ()))
            if bound and ever < group.least:
                yield f"{bound} pods of group {group.name} are bound without the others"

    def _alone(self, pods: list[Pod], groups: list[Group]) -> Iterator[str]:
        """Yield pods whose group is missing although no person deleted the group."""
        there = {(group.job, group.name) for group in groups}
        for pod in pods if not self._tampered else ():
            is_over = pod.end or pod.deleting or not pod.occupies
            if pod.group and not is_over and (pod.job, pod.group) not in there:
                yield f"pod {pod.name} is without its group {pod.group}"

    def _count(self, uid: str, job: Job) -> None:
        before = self._counts.get(uid, (0, 0))
        if any(now < then for now, then in zip(job.counts, before, strict=True)):
            self._wrong.append(f"job {job.name} counted {before} restarts and disruptions, now {job.counts}")
        # Workers learn one after another that a drain is over; a worker that has not learned it yet sends the job back
        # again.
        late = self._late.setdefault(uid, set())
        if job.late:
            late.add(job.generation)
        due = sum(job.counts) + self._requests + len(late) + self._resizes(uid, job)
        if job.generation > due and not self._interruptions.get(uid):
            self._wrong.append(f"job {job.name} was restarted {job.generation} times, for {job.counts} reasons")
        self._counts[uid] = job.counts

    def _resizes(self, uid: str, job: Job) -> int:
        """Return how often a job with ranks may have restarted all pods because of growths and removals."""
        sizes, found = job.sizes, self._changes.setdefault(uid, set())
        found |= {sizes.victims} if sizes.static and sizes.victims else set()
        return sizes.grown + len(found) if sizes.static else 0


def _removed(job: Job, uid: str, pods: list[Pod]) -> int:
    """Return how many of the granted workers have been removed. The group of the job must not wait for these
    workers.
    """
    stay = {pod.name for pod in pods if pod.job == uid and not pod.deleting}
    return len(job.sizes.victims - stay)


def _when(pod: Pod) -> tuple[str, int, int]:
    return pod.job, pod.attempt, pod.restart
