"""The jobs whose room is taken back for waiting jobs, as a table, and waiting jobs for which no job gives."""

from collections.abc import Mapping, Sequence

import pytest

from queues.resizing import recall_search
from queues.resizing.recall_search import HeldRoom
from queues.values import Entry, QueueSpec
from tests.support.clock import START
from tests.support.queues.builders import GPU, entry, key, specs
from tests.support.queues.elastic_scene import Scene, with_gpus

A, B = specs(a=1, b=1)
FULL = {"a": 24, "b": 8}


def held(*names: str, queue: str = "a", gpu: int = 8) -> list[HeldRoom]:
    return [HeldRoom(key(name), queue, {GPU: gpu}) for name in names]


def found(
    waiting: Sequence[Entry],
    holders: Sequence[HeldRoom],
    *,
    queues: Sequence[QueueSpec] = (A, B),
    rigid: Mapping[str, int] = FULL,
    leaving: Sequence[HeldRoom] = (),
    refused: Sequence[str] = (),
    reserved: str = "",
) -> list[str]:
    """Return the names of the jobs that give room in a pool of 32 GPUs."""
    scene = Scene(queues=queues, pool={GPU: 32}, rigid=rigid, waiting=waiting, reserved=reserved)
    return [each.name for each in recall_search.find(scene.picker(), holders, leaving, [*map(key, refused)], START)]


@pytest.mark.parametrize(
    ("gpus", "names"),
    [(4, ["h1"]), (8, ["h1"]), (12, ["h1", "h2"]), (24, ["h1", "h2", "h3"]), (25, []), (40, [])],
)
def test_no_more_room_is_taken_back_than_the_waiting_job_needs(gpus: int, names: list[str]) -> None:
    assert found([entry("head", "b", gpu=gpus)], held("h1", "h2", "h3")) == names


def test_nobody_gives_without_a_waiting_job_that_lacks_room() -> None:
    holders = held("h1", "h2", "h3")
    assert found([], holders) == []
    assert found([entry("head", "b", gpu=8)], holders, refused=["head"]) == []
    assert found([entry("head", "b", gpu=8)], holders, leaving=held("gone")) == []
    behind = [entry("head", "b", gpu=8), entry("next", "b", gpu=8, submitted=START + 1)]
    assert found(behind, holders, refused=["head"]) == ["h1"]
    assert found(behind, holders) == ["h1", "h2"]


def test_holder_that_gives_nothing_that_is_lacking_keeps_its_room() -> None:
    holders = [*held("other", gpu=1), *held("large", gpu=8)]
    assert found([entry("head", "b", gpu=8)], holders) == ["large"]


def test_only_the_queue_itself_gives_for_its_quota() -> None:
    limited = [with_gpus("a", 24), with_gpus("b", 8)]
    holders = [*held("h1", "h2"), *held("own", queue="b", gpu=8)]
    assert found([entry("head", "b", gpu=8)], holders, queues=limited) == ["own"]
    assert found([entry("head", "b", gpu=8)], held("h1", "h2"), queues=limited) == []


def test_members_of_a_cohort_give_for_what_a_member_lent() -> None:
    members = [with_gpus("a", 8, cohort="all"), with_gpus("b", 8, cohort="all")]
    waiting = [entry("head", "b", gpu=8)]
    assert found(waiting, held("h1"), queues=members, rigid={"a": 16}) == ["h1"]


def test_room_for_the_job_with_the_reservation_comes_first() -> None:
    waiting = [entry("large", "b", gpu=16), entry("small", "a", gpu=8)]
    assert found(waiting, held("h1", "h2"), reserved="b") == ["h1", "h2"]
    assert found(waiting, held("h1"), reserved="b") == [], "the small job cannot have the room that is kept"


def test_holder_of_a_queue_that_is_gone_gives_room_of_the_pool() -> None:
    assert found([entry("head", "b", gpu=8)], held("h1", queue="gone")) == ["h1"]
