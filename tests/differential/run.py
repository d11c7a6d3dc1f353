"""Runs of episodes: the same calls go to two servers, and differing answers are collected.

One rule: an episode ends at the first difference after which the two servers can no longer get the same calls.
"""

import json
import random
import threading
from collections import Counter
from dataclasses import dataclass, field, replace

from tests.differential.calls import calls
from tests.differential.compare import Difference, Seen, differences
from tests.differential.story import Story
from tests.differential.wire import HUNG_UP, Call, Line, Reply
from tests.support.kube.servers import Server

_CALLS = 20
_WRITES = {"POST", "PUT", "PATCH", "DELETE"}


@dataclass(frozen=True)
class Finding:
    """A call with different answers."""

    episode: int
    call: Call
    replies: tuple[Reply, Reply]
    differences: list[Difference]

    def sort(self) -> str:
        """Return the kind of the difference, by which similar findings are counted."""
        worst = self.differences[0]
        return f"{worst.level} | {self.call.method} {self.call.label} | {worst.where} | {_short(worst)}"


def _short(difference: Difference) -> str:
    return f"{str(difference.embedded)[:110]} <> {str(difference.real)[:110]}"


@dataclass
class Tally:
    """The result of a run."""

    calls: int = 0
    episodes: int = 0
    findings: list[Finding] = field(default_factory=list)
    hung_up: list[Call] = field(default_factory=list)
    """The calls in which the handler of the real server panicked."""
    labels: Counter[str] = field(default_factory=Counter)


def run(pair: tuple[Server, Server], seed: int, calls: int, only: int | None = None) -> Tally:
    """Run episodes with at least `calls` calls in total. With `only`, run only the episode of this number."""
    tally, episode = Tally(), 0
    while tally.calls < calls:
        if only is None or episode == only:
            _episode(pair, seed, episode, tally)
        if only is not None and episode >= only:
            break
        episode += 1
    return tally


def _episode(pair: tuple[Server, Server], seed: int, episode: int, tally: Tally) -> None:
    lines = (Line(pair[0]), Line(pair[1]))
    story = Story(random.Random(f"{seed}/{episode}"), f"d{seed}-{episode}")
    seen = (Seen(), Seen())
    tally.episodes += 1
    body = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": story.namespace}})
    for line in lines:
        line.send(Call("namespace", "POST", "/api/v1/namespaces", body))
    starts = [line.memory.objects[f"Namespace//{story.namespace}"]["resourceVersion"] for line in lines]
    for call in calls(story, _CALLS):
        replies = (lines[0].send(call), lines[1].send(call))
        tally.calls += 1
        tally.labels[call.label] += 1
        found = differences(call, replies, seen)
        if replies[1].code == HUNG_UP:
            tally.hung_up.append(call)
            break
        if found:
            tally.findings.append(Finding(episode, call, replies, found))
        if call.method in _WRITES and (replies[0].code < 300) != (replies[1].code < 300):
            break
    _watch(lines, story, starts, seen, (episode, tally))
    for line in lines:
        for call in story.farewell():
            line.send(call)
        line.close()


def _watch(
    lines: tuple[Line, Line], story: Story, starts: list[str], seen: tuple[Seen, Seen], into: tuple[int, Tally]
) -> None:
    episode, tally = into
    calls = list(story.watches())
    replies: dict[tuple[int, int], Reply] = {}

    def ask(index: int, side: int) -> None:
        call = replace(calls[index], path=calls[index].path.replace("@{start}", starts[side]))
        line = Line(lines[side].server)
        replies[index, side] = line.send(call)
        line.close()

    threads = [threading.Thread(target=ask, args=(index, side)) for index in range(len(calls)) for side in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, call in enumerate(calls):
        tally.calls += 1
        tally.labels[call.label] += 1
        pair = (replies[index, 0], replies[index, 1])
        found = differences(call, pair, (Seen(), Seen()))
        if found:
            tally.findings.append(Finding(episode, call, pair, found))
