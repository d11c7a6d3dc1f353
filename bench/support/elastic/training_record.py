"""The lines that all processes of `examples/elastic/train.py` append to one file, and the facts about a resize in these
lines.

One rule: pure. A line that is not complete yet is ignored.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Launch:
    """A training process runs, but has not met its peers."""

    pod: str
    time: float


@dataclass(frozen=True, slots=True)
class Start:
    """A training process has met its peers and has loaded the saved state."""

    pod: str
    rank: int
    world: int
    done: int
    """The number of steps that were saved."""
    time: float


@dataclass(frozen=True, slots=True)
class Step:
    """Rank 0 has done a step together with its peers."""

    step: int
    world: int
    loss: float
    time: float


Line = Launch | Start | Step


def parse(text: str) -> list[Line]:
    """Return the lines in the order of their times."""
    complete = text[: text.rfind("\n") + 1]
    return sorted(map(_line, complete.splitlines()), key=lambda line: line.time)


def _line(text: str) -> Line:
    words = text.split()
    facts = dict(zip(words[::2], words[1::2], strict=True))
    time = float(facts["time"])
    if "launch" in facts:
        return Launch(facts["launch"], time)
    world = int(facts["world"])
    if "start" in facts:
        return Start(facts["start"], int(facts["rank"]), world, int(facts["done"]), time)
    return Step(int(facts["step"]), world, float(facts["loss"]), time)


def first_step(lines: Iterable[Line], since: float, world: int) -> Step | None:
    """Return the first step of a world that began after a moment and has this number of processes."""
    has_begun = False
    for line in lines:
        if line.time < since:
            continue
        if isinstance(line, Start):
            has_begun = has_begun or (line.rank == 0 and line.world == world)
        elif isinstance(line, Step) and has_begun and line.world == world:
            return line
    return None


def restarts(lines: Iterable[Line], since: float) -> int:
    """Return how often the process of a pod was launched after a moment, in the pod in which it was most often."""
    launches = Counter(line.pod for line in lines if isinstance(line, Launch) and line.time >= since)
    return max(launches.values(), default=0)


def steps_lost(lines: Sequence[Line], since: float) -> int:
    """Return how many steps were done again after a moment, because they were not saved when a world ended."""
    lost, last = 0, max((line.step for line in lines if isinstance(line, Step) and line.time < since), default=0)
    for line in lines:
        if line.time < since:
            continue
        if isinstance(line, Step):
            last = line.step
        elif isinstance(line, Start) and line.rank == 0:
            lost, last = lost + max(0, last - line.done), line.done
    return lost


def losses(lines: Iterable[Line]) -> dict[int, float]:
    """Return the loss of each step, as it was computed last."""
    return {line.step: line.loss for line in lines if isinstance(line, Step)}


def loss_gap(disturbed: dict[int, float], undisturbed: dict[int, float], steps: int = 50) -> float:
    """Return by how many percent the mean loss of the last steps differs from the loss of an undisturbed run.

    Raises ValueError if the runs have no step in common.
    """
    last = sorted(disturbed.keys() & undisturbed.keys())[-steps:]
    if not last:
        raise ValueError("the runs have no step in common")
    ours, theirs = (sum(run[step] for step in last) for run in (disturbed, undisturbed))
    return 100 * abs(ours - theirs) / theirs
