"""Child processes that a supervisor keeps alive and that never outlive it.

One rule: every child ends with its supervisor, even if the supervisor is killed with -9. torchq's own processes watch a
pipe (`end_with_parent`); other programs get a signal from Linux when their parent dies (`Command.foreign`).
"""

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coordinator.life.channel import ReportPipe
from coordinator.life.children import Children
from coordinator.local import die_with_parent
from kube.process.turns import Turn, Turns
from kube.stop import Stop

log = logging.getLogger(__name__)

PIPE = "TORCHQ_PARENT_PIPE"
"""The environment variable with DESCRIPTOR:INODE of a pipe. Its end of file means that the supervisor is dead."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0
_HEALTHY_SECONDS = 30.0
"""After this lifetime, earlier deaths of a child no longer lengthen its pause."""
WATCH_SECONDS = 0.1
"""How often the supervisor looks for children that have died."""
_POLL_SECONDS = 0.05
"""How often it looks while it waits for their end."""
_LOOK_SECONDS = 0.25
"""How often the supervisor reads what children tell."""
_JUDGE_SECONDS = 2.0
"""How often the supervisor looks for children that hang."""
KILL_MARGIN = 3.0
"""The time from the end of a child's own drain limit until the supervisor kills it. A grace period that outlasts both
leaves every key in order."""


HUNG_SECONDS = 30.0
"""How long a child may hang, from the moment at which its probe fails, before it is killed. A kubelet that waits longer
restarts no healthy process along with it."""
_LONGEST_LOOK = 3.0
"""The most seconds that count from one look to the next."""


class HungChildren:
    """The children that hang now, and for how long they have been seen to.

    Only time counts in which the supervisor itself ran. If the child and the supervisor were both stopped, the child
    has its whole time again.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._looked_at = 0.0

    def look(self, hanging: Mapping[str, str], now: float) -> dict[str, str]:
        """Return the children that have hung for too long, with their problems."""
        passed, self._looked_at = min(_LONGEST_LOOK, now - self._looked_at), now
        self._seconds = {name: self._seconds.get(name, -passed) + passed for name in hanging}
        over = {name: hanging[name] for name, seconds in self._seconds.items() if seconds > HUNG_SECONDS}
        for name in over:
            del self._seconds[name]
        return over


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A process to keep alive."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] | None = None
    """The environment; None means that of the supervisor. Secrets belong here, since all users can read arguments."""
    output: Path | None = None
    """The file to which output is appended; None means the supervisor's own output."""
    stage: int = 0
    """The stage. Higher stages end first, each one before the next: a worker drains while its Redis still answers."""
    foreign: bool = False
    """Whether the program cannot call `end_with_parent`."""
    at_death: signal.Signals = signal.SIGINT
    """The signal that a foreign program gets when its supervisor dies."""
    after_end: Callable[[int], None] | None = None
    """Called with the exit status after the process has ended, before it is started again."""
    tells: bool = False
    """Whether the program tells of itself (`coordinator.life.channel`)."""
    once: bool = False
    """Whether exit code 0 means that the work is done, so that the process is not started again."""


@dataclass(slots=True)
class _Child:
    command: Command
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    deaths: int = 0
    ended: str = ""
    due: float = 0.0
    pipe: ReportPipe | None = None
    """The pipe on which the process tells of itself."""


def restart_pause(deaths: int) -> float:
    """Return the seconds before a child starts again after a number of deaths in a row: 0.2, 0.4, 0.8 ... 30."""
    return float(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(deaths - 1, 16)))


class Supervisor:
    """Starts children, restarts them when they die, and stops them.

    Only one thread may use the supervisor, and that thread must live as long as the children.
    """

    def __init__(self, drain_seconds: float = 20.0, children: Children | None = None, turn: Turn | None = None) -> None:
        """`children` gets the messages of the processes about themselves, and `turn` the turns of the supervisor."""
        self._drain = drain_seconds
        self.told = children or Children()
        self._turn = turn or Turn("supervisor")
        self._hung = HungChildren()
        self._look_at = self._judge_at = 0.0
        self._children: dict[str, _Child] = {}
        self._ending: list[_Child] = []
        self._reader, self._writer = os.pipe()
        self._pipe = f"{self._reader}:{os.fstat(self._reader).st_ino}"

    def start(self, command: Command) -> None:
        """Start a process and keep it alive from now on. Raises OSError if the program cannot be started at all."""
        child = _Child(command)
        self._spawn(child)
        self._children[command.name] = child

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running children, by name."""
        return {name: child.process.pid for name, child in self._children.items() if child.process}

    def has(self, name: str) -> bool:
        """Return whether the supervisor keeps that child alive, even if the child does not run just now."""
        return name in self._children

    def command(self, name: str) -> Command:
        """Return the command of a child."""
        return self._children[name].command

    def deaths(self, name: str) -> int:
        """Return how often in a row the child has died soon after its start."""
        return self._children[name].deaths

    def replace(self, command: Command) -> None:
        """Leave the running process of this name alone, and start `command` when that process has ended.

        If `command` is `once`, the child is not started after an end with code 0.
        """
        child = self._children[command.name]
        child.command, child.deaths, child.due = command, 0, 0.0

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a child, if it runs."""
        _send(self._children[name], number)

    def troubles(self) -> dict[str, tuple[int, str]]:
        """Return for each child that has ended by itself the number of deaths in a row and the last exit status."""
        return {name: (child.deaths, child.ended) for name, child in self._children.items() if child.deaths}

    def watch(self, stop: Stop) -> None:
        """Keep the children alive until the process is asked to end."""
        while not stop():
            self.step()
            stop.pause(WATCH_SECONDS)

    def step(self) -> None:
        """Note children that have died, and start those whose pause is over."""
        self._turn.mark()
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            for child in (*self._ending, *self._children.values()):
                self._hear(child)
        if now >= self._judge_at:
            self._judge_at = now + _JUDGE_SECONDS
            self._kill_hung(now)
        for child in tuple(self._children.values()):
            if child.process is not None and child.process.poll() is not None:
                if child.command.once and child.process.returncode == 0:
                    del self._children[child.command.name]
                    self._close_pipe(child)
                    self.told.forget(child.command.name)
                    continue
                self._note_death(child, now)
            if child.process is None and now >= child.due:
                self._respawn(child)

    def stop(self) -> list[str]:
        """End all children, stage by stage; return the names of the killed children."""
        killed: list[str] = []
        try:
            for stage in sorted({child.command.stage for child in self._children.values()}, reverse=True):
                killed += self.end(stage)
        finally:
            for child in (*self._ending, *self._children.values()):
                _kill(child)
                self._close_pipe(child)
            self._children.clear()
            os.close(self._writer)
            os.close(self._reader)
        return killed

    def end(self, stage: int, number: signal.Signals = signal.SIGTERM) -> list[str]:
        """End the children of one stage; return the names of the killed children.

        The other children are kept alive meanwhile, since the end of a login session sends SIGTERM to all children.
        """
        self._ending = [child for child in self._children.values() if child.command.stage == stage]
        for child in self._ending:
            del self._children[child.command.name]
            _send(child, number)
        return self._await(self._ending)

    def _spawn(self, child: _Child) -> None:
        command = child.command
        child.pipe = pipe = ReportPipe() if command.tells else None
        own = {PIPE: self._pipe, **(pipe.environment if pipe else {})}
        environment = {**(os.environ if command.environment is None else command.environment), **own}
        arguments = list(command.arguments)
        if command.foreign:
            arguments = die_with_parent.wrap_command(arguments, command.at_death)
        output = open(command.output, "ab") if command.output else None  # noqa: SIM115 - handed to the child
        try:
            child.process = subprocess.Popen(
                arguments,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=() if command.foreign else (self._reader, *([pipe.writer] if pipe else [])),
                # So Ctrl-C of a terminal reaches the supervisor only, which then stops the children in order.
                process_group=0,
            )
        finally:
            if output:
                output.close()
            if pipe:
                pipe.keep_reader()
        if pipe:
            self.told.begin(command.name, child.process.pid)
        child.started = time.monotonic()

    def _respawn(self, child: _Child) -> None:
        try:
            self._spawn(child)
        except OSError as error:
            self._close_pipe(child)
            child.deaths += 1
            child.ended = f"cannot be started: {error}"
            child.due = time.monotonic() + restart_pause(child.deaths)
            log.error("%s cannot be started: %s", child.command.name, error)

    def _note_death(self, child: _Child, now: float) -> None:
        assert child.process is not None
        lived = now - child.started
        child.deaths = 1 if lived > _HEALTHY_SECONDS else child.deaths + 1
        pause = restart_pause(child.deaths)
        name, pid, how = child.command.name, child.process.pid, ending(child.process.returncode)
        log.warning("%s (pid %d) %s after %.0f s; starting it again in %.1f s", name, pid, how, lived, pause)
        if child.command.after_end:
            child.command.after_end(child.process.returncode)
        child.process, child.due, child.ended = None, now + pause, how
        if child.pipe:
            self._hear(child)
            self._close_pipe(child)
            self.told.end(name, how)

    def _kill_hung(self, now: float) -> None:
        for name, problem in self._hung.look(self.told.hanging(), now).items():
            if name in self._children:
                log.error("%s hangs (%s): it is killed and started again", name, problem)
                self.send(name, signal.SIGKILL)

    def _hear(self, child: _Child) -> None:
        for report in child.pipe.read() if child.pipe else ():
            self.told.hear(child.command.name, report)

    @staticmethod
    def _close_pipe(child: _Child) -> None:
        if child.pipe:
            child.pipe.close()
            child.pipe = None

    def _await(self, members: Sequence[_Child]) -> list[str]:
        deadline = time.monotonic() + self._drain + KILL_MARGIN
        while any(map(_runs, members)) and time.monotonic() < deadline:
            self.step()
            time.sleep(_POLL_SECONDS)
        late = [child for child in members if _runs(child)]
        for child in late:
            log.warning("%s did not end in %.0f s and is killed", child.command.name, self._drain + KILL_MARGIN)
            _kill(child)
        return [child.command.name for child in late]


def supervise(
    commands: Sequence[Command],
    *,
    drain_seconds: float = 20.0,
    children: Children | None = None,
    turns: Turns | None = None,
) -> int:
    """Keep the commands alive until SIGTERM or SIGINT, then stop them. Returns exit code 1 if a child had to be killed.

    `children` gets the messages of the processes about themselves; the supervisor is one of the loops in `turns`.

    Only the main thread may call this. A second signal, more than a second later, kills the rest at once.
    """
    stop = Stop()
    stop.listen()
    supervisor = Supervisor(drain_seconds, children, turns.loop("supervisor") if turns else None)
    try:
        for command in commands:
            supervisor.start(command)
        supervisor.watch(stop)
    finally:
        killed = supervisor.stop()
    return 1 if killed else 0


def ending(returncode: int) -> str:
    """Format an exit status."""
    if returncode >= 0:
        return f"ended with code {returncode}"
    return f"was ended by {signal.Signals(-returncode).name}"


def end_with_parent(grace: float = 30.0) -> None:
    """End this process when its supervisor dies: send SIGTERM to itself, and exit after `grace` seconds.

    A child calls this at its start. The call has no effect in a process that no supervisor started.
    """
    descriptor, _, inode = os.environ.pop(PIPE, "").partition(":")
    if descriptor and _is_pipe(int(descriptor), int(inode)):
        os.set_inheritable(int(descriptor), False)
        threading.Thread(target=_wait_for_parent, args=(int(descriptor), grace), name="parent", daemon=True).start()


def _is_pipe(descriptor: int, inode: int) -> bool:
    """Return whether the descriptor is the pipe to the supervisor. A parent may have inherited the variable without the
    descriptor.
    """
    try:
        return os.fstat(descriptor).st_ino == inode
    except OSError:
        return False


def _wait_for_parent(descriptor: int, grace: float) -> None:
    os.read(descriptor, 1)
    log.warning("the supervisor of this process is dead; ending, too")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace)
    os._exit(1)


def _runs(child: _Child) -> bool:
    return child.process is not None and child.process.poll() is None


def _send(child: _Child, number: signal.Signals) -> None:
    if child.process is not None and _runs(child):
        child.process.send_signal(number)


def _kill(child: _Child) -> None:
    _send(child, signal.SIGKILL)
    if child.process is not None:
        child.process.wait()
