"""One pod on this node: look at its runs, decide, act, report.

One rule: level-triggered: `sync` may be called at any time, any number of times, by a node that remembers nothing.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from crds import labels
from crds.resources.amounts import Amounts
from crds.torchjob import demand
from embedded import pod, pod_requirements
from embedded.layout import Layout
from embedded.node import restart_record
from embedded.node.pods import environment, missing_files
from embedded.node.pods.environment import Place
from embedded.node.pods.status_reporter import Report, Reporter
from embedded.node.pods.volumes import Volumes
from embedded.node.resources import devices
from embedded.node.resources.devices import Devices
from embedded.node.resources.memory_watch import MemoryWatch, Watched, WatchedPod
from embedded.node.runs import processes
from embedded.node.runs.container_runs import Order, Run, RunKey, Runs
from embedded.node.shutdown import shutdown
from embedded.node.shutdown.shutdown import NodeShutdown, PodShutdown
from embedded.node.shutdown.shutdown_record import EndingPod
from embedded.node.status import lifecycle, pod_status, restarts
from embedded.node.status.lifecycle import Action, Backoff, Containers, Kill, Start, Stopping, Terminate
from embedded.node.status.pod_status import Status, Verdict, View
from embedded.pod import LocalPod

logger = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 2.0
"""How often a running pod is looked at closely: whether its shims still live."""
_LAST_BYTES, _LAST_LINES = 2048, 80
"""How much of its output becomes a failed container's message, as the kubelet takes it."""
_SEARCHED_BYTES = 16 * 1024
"""How much of its output is searched for a file that a failed container missed."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What all pods of a node stand on."""

    layout: Layout
    runs: Runs
    devices: Devices
    reporter: Reporter
    base: Mapping[str, str]
    allocatable: Amounts
    memory: MemoryWatch
    shutdown: NodeShutdown
    backoff: Backoff = field(default_factory=Backoff)


class PodWork:
    """One pod."""

    def __init__(self, pod: LocalPod, ground: Ground) -> None:
        self.pod = pod
        self.wake_at = 0.0
        """When to look again if nothing changes before, in seconds since the epoch."""
        self.failures = 0
        """Unforeseen errors in a row."""
        self._ground = ground
        self._volumes = Volumes(ground.layout, pod.uid)
        restart = restart_record.read(ground.layout, pod.uid)
        self._containers: Containers = replace(lifecycle.containers(pod.spec, ground.backoff), restart=restart)
        self._histories: dict[str, tuple[Run, ...]] = {name: () for name in self._containers.all}
        self._status: Mapping[str, Any] = pod.status
        self._stopping: Stopping | None = None
        """Why the pod is to end, if it is."""
        self._restarting: Stopping | None = None
        """Why its containers are to end although it runs on, if they are."""
        self._shutdown = PodShutdown(ground.layout, pod.uid, ground.shutdown)
        self._signalled: frozenset[tuple[str, int]] = self._shutdown.asked
        self._verdict: Verdict | None = None
        self._waiting: dict[str, str] = {}
        self._let_go = False
        self._logged: dict[tuple[str, int], int] = {}

    def update(self, pod: LocalPod) -> None:
        """The API server's newer word on the pod."""
        self.pod = pod
        self.wake_at = 0.0

    def due(self, now: float) -> bool:
        """Whether there is something to look at."""
        return now >= self.wake_at or any(
            self._ground.runs.changed(self._key(name, run.restart), run) for name, run in self._alive()
        )

    def note(self, now: float) -> None:
        """Note how long the logs of what runs are."""
        for name, run in self._alive():
            place = (name, run.restart)
            self._logged[place] = self._ground.runs.note(self._key(*place), now, self._logged.get(place, 0))

    @property
    def at_rest(self) -> bool:
        """Whether nothing can change before the API server says so: no run is alive, and no time is waited for."""
        return self.wake_at == float("inf") and not self._alive()

    @property
    def unmarked(self) -> bool:
        """Whether something of it runs, and the API server does not show that the node's shutdown ends it."""
        if self.pod.deleting or self.pod.finished or not self._alive():
            return False
        return self._verdict in (None, shutdown.VERDICT) and not self._shutdown.shown(self.pod)

    def ending(self) -> EndingPod | None:
        """What there is to wait for before the node may end; None if there is nothing."""
        if not self._alive() and (self._let_go or not self.pod.deleting):
            return None
        stopping = self._stopping
        job = (self.pod.manifest["metadata"].get("labels") or {}).get(labels.JOB_NAME, "")
        until = None if stopping is None else stopping.since + stopping.grace
        return EndingPod(self.pod.namespace, self.pod.name, job, until)

    def sync(self, now: float) -> None:
        """Bring the pod one step further. OSError if the machine's disk fails."""
        self._observe()
        if self._refuse(now):
            return
        held_until = self._meet_shutdown(now)
        if held_until is not None:
            self.wake_at = held_until
            return
        self._publish()
        self._judge(now)
        self._take_up_restart()
        self._make_way(now)
        plan = lifecycle.plan(self._containers, self._histories, now, self._stopping or self._restarting)
        self._waiting = {}
        if not self.pod.finished or self._stopping:
            for action in plan.actions:
                self._apply(action)
            if plan.actions:
                self._observe()
            if self._stopping:
                self._shutdown.note_asked(self._stopping.since, self._signalled)
        self._report(now)
        self._watch_memory()
        watched = now + _LOOK_AGAIN_SECONDS if self._waiting or self._alive() else plan.wake_at
        self.wake_at = min(plan.wake_at, watched, self._deadline())

    def _watch_memory(self) -> None:
        """Say what runs, and how much memory it may use."""
        spec = self.pod.spec
        limits = {
            each["name"]: _memory_limit(each) for each in (*spec["containers"], *(spec.get("initContainers") or ()))
        }
        running = tuple(
            Watched(self._key(name, run.restart), run.process, limits[name])
            for name, run in self._alive()
            if run.process is not None
        )
        self._ground.memory.watch(self.pod.uid, WatchedPod(running, _memory_limit(spec)))

    def _observe(self) -> None:
        runs, uid = self._ground.runs, self.pod.uid
        self._histories = {name: runs.history(uid, name, known) for name, known in self._histories.items()}

    def _alive(self) -> list[tuple[str, Run]]:
        return [(name, history[-1]) for name, history in self._histories.items() if history and history[-1].alive]

    def _key(self, container: str, restart: int) -> RunKey:
        return RunKey(self.pod.uid, container, restart)

    def _refuse(self, now: float) -> bool:
        """Fail a pod that cannot run here, before anything of it has."""
        if self.pod.finished or self.pod.deleting or self._shutdown.closed or any(self._histories.values()):
            return False
        verdict = pod_requirements.refusal(self.pod.spec, self.pod.demand, self._ground.allocatable)
        if verdict is None:
            return False
        self._tell(pod_status.refused_status(verdict, self._status, now))
        self.wake_at = float("inf")
        return True

    def _publish(self) -> None:
        """Bring what the containers read of their pod up to date, as far as the machine lets us."""
        if self.pod.finished or self.pod.deleting:
            return
        try:
            self._volumes.publish(self.pod)
        except OSError as e:
            logger.warning("files in volumes of pod %s are not up to date: %s", self.pod, e)

    def _meet_shutdown(self, now: float) -> float | None:
        """Mark the pod if the node's shutdown ends it. Until when nothing may be concluded; None if something may."""
        if self.pod.finished or self.pod.deleting or self._verdict:
            return None
        return self._shutdown.meet(self._containers, self._histories, self._signalled, now)

    def _judge(self, now: float) -> None:
        """Whether the pod is to stop, and how much time it has."""
        grace = self._grace(now)
        asked = self._shutdown.mark.asked_at if self._shutdown.mark else None
        since = self._stopping.since if self._stopping else asked or now
        self._stopping = None if grace is None else Stopping(grace, since, self._signalled)

    def _take_up_restart(self) -> None:
        """Put the restart in place that the pod is asked for on record, unless that was done."""
        if self.pod.finished or self._stopping:
            return
        restart = restarts.taken_up(self._containers, self._histories, self._restart_wanted())
        if restart is not None:
            restart_record.write(self._ground.layout, self.pod.uid, restart)
            self._containers = replace(self._containers, restart=restart)

    def _restart_wanted(self) -> str:
        return str(self.pod.annotations.get(labels.RESTART_CONTAINERS, ""))

    def _make_way(self, now: float) -> None:
        """Whether containers are to end for a restart in place, and how much time they have.

        A node that finds them so gives them all of it: the one before may not have come to asking them.
        """
        if not lifecycle.makes_way(self._containers, self._histories):
            self._restarting = None
            return
        since = self._restarting.since if self._restarting else now
        self._restarting = Stopping(self._own_grace(), since, self._signalled)

    def _grace(self, now: float) -> float | None:
        if self.pod.deleting:
            return 0.0 if self._shutdown.hurried else self.pod.deletion_grace
        own = self._own_grace()
        if self.pod.finished:
            return own if self._alive() else None
        if self._verdict is None and self._shutdown.ends(self._containers, self._histories):
            self._verdict = shutdown.VERDICT
        if self._verdict is shutdown.VERDICT and not self._shutdown.may_ask(self.pod, now):
            return None
        if self._verdict is None and now >= self._deadline() and not self._ended():
            self._verdict = Verdict("DeadlineExceeded", "the pod ran longer than spec.activeDeadlineSeconds")
        return own if self._verdict else None

    def _own_grace(self) -> float:
        return 0.0 if self._shutdown.hurried else float(self.pod.spec.get("terminationGracePeriodSeconds", 30))

    def _deadline(self) -> float:
        seconds, started = self.pod.spec.get("activeDeadlineSeconds"), self._status.get("startTime")
        if not seconds or not started or self._verdict or self._ended():
            return float("inf")
        return pod.seconds(started) + float(seconds)

    def _ended(self) -> bool:
        return lifecycle.outcome(self._containers, self._histories) in pod.FINISHED

    def _apply(self, action: Action) -> None:
        match action:
            case Start(container, restart):
                if not self._shutdown.closed:
                    self._start(container, restart)
            case Terminate(container, run):
                if run.process is not None:
                    processes.signal_group(run.process, processes.TERMINATE)
                self._signalled |= {(container, run.restart)}
            case Kill(container, run):
                processes.kill_marked(self._key(container, run.restart).mark, run.process)

    def _start(self, name: str, restart: int) -> None:
        """Begin a run, or say why it cannot begin yet."""
        try:
            self._volumes.publish(self.pod)
            order = self._order(name, restart)
            if order is None:
                self._waiting[name] = "the node's GPUs are not free yet"
                return
            self._ground.runs.start(self._key(name, restart), order)
            self._ground.runs.prune(self.pod.uid, name)
        except OSError as e:
            logger.warning("container %s of pod %s cannot start yet: %s", name, self.pod, e)
            self._waiting[name] = f"the machine cannot start it: {e}"
        except pod.NONSENSE as e:
            message = f"the embedded node cannot run container {name}: {e}"
            self._verdict = self._verdict or Verdict("NotSupported", message)

    def _order(self, name: str, restart: int) -> Order | None:
        pod, ground = self.pod, self._ground
        folder = ground.layout.pod(pod.uid)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        assigned = ground.devices.assign(pod.uid, devices.wanted(pod.spec))
        if assigned is None:
            return None
        spec = pod.spec
        container = next(
            each for each in (*spec["containers"], *(spec.get("initContainers") or ())) if each["name"] == name
        )
        place = Place(
            base=ground.base,
            volumes={volume["name"]: str(self._volumes.folder(volume)) for volume in spec.get("volumes") or ()},
            message=str(ground.runs.message(self._key(name, restart))),
            folder=str(folder),
            gpus=devices.share(spec, name, assigned),
            machine_gpus=environment.GPU in ground.allocatable,
            allocatable=ground.allocatable,
        )
        return environment.order(pod, container, place)

    def _report(self, now: float) -> None:
        over = not self._alive()
        # A run that is just beginning is told with its beginning: a moment later, and a write less.
        beginning = any(run.started_at is None for _, run in self._alive())
        told = beginning or self.pod.finished or (self.pod.deleting and not any(self._histories.values()))
        if not told:
            self._tell(pod_status.running_status(self._view(), self._known_status(), now))
        elif self.pod.finished and self._restart_wanted():
            self._tell_too_late(now)
        if over and (self.pod.finished or self._status.get("phase") in pod.FINISHED):
            self._ground.devices.release(self.pod.uid)
        if over and self.pod.deleting and not self._let_go:
            self._let_go = True
            self._ground.reporter.report(Report(self.pod, None, remove=True))

    def _view(self) -> View:
        return View(
            containers=self._containers,
            spec=self.pod.spec,
            histories=self._histories,
            last_words=dict(self._last_words()),
            waiting=self._waiting,
            stopping=self._stopping is not None or self._verdict is not None,
            verdict=self._verdict,
            missing_file=self._missing_file(),
            restart_wanted=self._restart_wanted(),
        )

    def _tell_too_late(self, now: float) -> None:
        """Say that the pod had ended when its restart was asked for, unless that is known."""
        before = self._known_status()["conditions"]
        wanted = pod_status.restart_conditions(self._view(), self.pod.phase)
        self._tell({"conditions": pod_status.merge_conditions(before, wanted, now)})

    def _known_status(self) -> Mapping[str, Any]:
        """What we wrote last, with the conditions of others as the API server tells them."""
        ours = {each["type"]: each for each in pod_status.sound(self._status.get("conditions"))}
        theirs = {each["type"]: each for each in pod_status.sound(self.pod.status.get("conditions"))}
        return {**self._status, "conditions": list((theirs | ours).values())}

    def _tell(self, status: Status) -> None:
        if pod_status.differs(status, self._status):
            self._status = {**self._status, **status}
            self._ground.reporter.report(Report(self.pod, status))

    def _last_words(self) -> list[tuple[tuple[str, int], str]]:
        wanting = [
            container["name"]
            for container in (*self.pod.spec["containers"], *(self.pod.spec.get("initContainers") or ()))
            if container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        ]
        return [
            ((name, run.restart), self._words(name, run))
            for name in wanting
            for run in self._histories[name][-2:]
            if run.ending is not None and run.ending.exit_code
        ]

    def _missing_file(self) -> str:
        """The file that a container missed in the folder of a job's pod that names none; empty if there is none."""
        if labels.JOB_NAME not in self.pod.labels or self.pod.annotations.get(labels.SUBMIT_DIRECTORY):
            return ""
        spec = self.pod.spec
        containers = (*spec["containers"], *(spec.get("initContainers") or ()))
        return next(filter(None, map(self._missed_by, containers)), "")

    def _missed_by(self, container: Mapping[str, Any]) -> str:
        """The file that one container missed in the pod's own folder."""
        runs, folder = self._histories[container["name"]], self._ground.layout.pod(self.pod.uid)
        ending = runs[-1].ending if runs else None
        if container.get("workingDir") or ending is None or not ending.exit_code:
            return ""
        said = self._ground.runs.tail(self._key(container["name"], runs[-1].restart), _SEARCHED_BYTES)
        command = [*container["command"], *(container.get("args") or ())]
        return missing_files.first(command, f"{said}\n{ending.message}", lambda path: (folder / path).exists())

    def _words(self, name: str, run: Run) -> str:
        text = self._ground.runs.tail(self._key(name, run.restart), _LAST_BYTES)
        return "\n".join(text.splitlines()[-_LAST_LINES:])


def _memory_limit(asked: Mapping[str, Any]) -> int:
    """`resources.limits.memory` of a container, or of a pod itself, in bytes; 0 for no limit."""
    return demand.amounts((asked.get("resources") or {}).get("limits")).get("memory", 0)
