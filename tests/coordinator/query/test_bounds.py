"""What of an answer a reader is told: no name of another team in any byte, and all that the own jobs need."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.access.readers import EVERYWHERE, NOBODY, Reader
from coordinator.query.bounds import Bounds
from coordinator.query.questions import ANOTHER

TEAM_A = Reader(namespaces=frozenset(["ours"]))
USABLE, LISTED = {"ours", "open"}, {"ours"}
SECRETS = ("theirs", "hidden", "uid-7")


def bounds(reader: Reader) -> Bounds:
    usable, listed = (USABLE, LISTED) if reader.namespaces else ({"open"}, set())
    return Bounds(reader, usable.__contains__, listed.__contains__)


def queue(name: str, first: str | None = None, *holders: dict[str, Any]) -> dict[str, Any]:
    status = {"pending": 3, "first": first, "firstScore": 1.5}
    held = {"holders": [*holders], "otherHolders": 1} if holders else {}
    return {"metadata": {"name": name}, "spec": {"weight": 1}, "status": status | held}


def named(team: str, **more: Any) -> dict[str, Any]:
    return {"job": f"{team}/{'train' if team == 'ours' else 'hidden'}", "uid": "uid-1" if team == "ours" else "uid-7",
            "queue": team, **more}  # fmt: skip


def pick(number: int, team: str) -> dict[str, Any]:
    return named(team, pick=number, cost=1, demand={"cpu": "3"}, workers=1, growth=False, priority=0, waitSeconds=7.5)


def test_who_may_list_all_jobs_gets_answers_as_they_are() -> None:
    told = bounds(EVERYWHERE)
    item = queue("theirs", "theirs/hidden", named("theirs", charge={"cpu": "1"}))
    picks = {"items": [pick(1, "theirs")], "pool": {}, "waiting": 1}
    assert (told.queues([item]), told.queue(item), told.picks(picks)) == ([item], item, picks)
    assert told.shows("anything")


def test_a_list_has_the_queues_of_the_reader_and_a_question_also_those_that_all_may_use() -> None:
    items = [queue("ours"), queue("open"), queue("theirs")]
    assert [item["metadata"]["name"] for item in bounds(TEAM_A).queues(items)] == ["ours"]
    assert bounds(NOBODY).queues(items) == []
    assert [name for name in ("ours", "open", "theirs") if bounds(TEAM_A).shows(name)] == ["ours", "open"]
    assert [name for name in ("ours", "open", "theirs") if bounds(NOBODY).shows(name)] == ["open"]


def test_the_first_job_and_the_holders_of_a_queue_are_named_if_the_reader_may_read_them() -> None:
    holders = [named(team, charge={"cpu": "1"}) for team in ("ours", "theirs")]
    status = bounds(TEAM_A).queue(queue("ours", "theirs/hidden", *holders))["status"]
    assert (status["first"], status["firstScore"], status["pending"]) == (ANOTHER, 1.5, 3)
    assert status["holders"] == [holders[0], {"job": ANOTHER, "uid": "", "queue": "", "charge": {"cpu": "1"}}]
    assert bounds(TEAM_A).queue(queue("ours", "ours/train"))["status"]["first"] == "ours/train"
    assert bounds(TEAM_A).queue(queue("ours"))["status"]["first"] is None


def test_of_a_pick_of_others_a_reader_learns_where_it_stands() -> None:
    document = {"items": [pick(1, "theirs"), pick(2, "ours")], "pool": {"used": {}}, "waiting": 9}
    assert bounds(TEAM_A).picks(document) == document | {"items": [{"pick": 1, "job": ANOTHER}, pick(2, "ours")]}


def test_places_and_the_plan_have_the_own_jobs_alone() -> None:
    places = [named(team, position=number, of=2) for number, team in enumerate(("theirs", "ours"), start=1)]
    assert bounds(TEAM_A).places(places) == [places[1]]
    assert bounds(NOBODY).places(places) == []
    gives = named("ours", to=1, **{"for": "theirs/hidden", "forQueue": "theirs"})
    own = named("ours", to=1, **{"for": "ours/train", "forQueue": "ours"})
    plan = {"resizes": [gives, own, named("theirs", to=2, **{"for": None, "forQueue": None})],
            "claims": [named("theirs"), named("ours")], "unchanged": [named("theirs"), named("ours")]}  # fmt: skip
    told = bounds(TEAM_A).plan(plan)
    assert told["resizes"] == [gives | {"for": ANOTHER, "forQueue": ""}, own]
    assert told["claims"] == told["unchanged"] == [named("ours")]


@pytest.mark.parametrize("part", ["growth", "rest"])
def test_the_holders_of_what_a_job_waits_for_are_bounded_in_each_part(part: str) -> None:
    held = {"holders": [named("theirs", charge={})], "otherHolders": 0}
    told = bounds(TEAM_A).job(named("ours", **held, **{part: {"code": "WaitingForPool", **held}}))
    assert told["holders"] == told[part]["holders"] == [{"job": ANOTHER, "uid": "", "queue": "", "charge": {}}]


TEAMS = st.sampled_from(["ours", "theirs"])
HOLDERS = st.lists(TEAMS.map(lambda team: named(team, charge={"cpu": "1"})), max_size=3)


@given(st.lists(TEAMS, max_size=6), HOLDERS, st.sampled_from([TEAM_A, NOBODY]))
def test_no_byte_of_an_answer_names_another_team(teams: list[str], held: list[dict[str, Any]], reader: Reader) -> None:
    told = bounds(reader)
    first = f"{teams[0]}/{'train' if teams[0] == 'ours' else 'hidden'}" if teams else None
    resizes = [named(team, to=1, **{"for": "theirs/hidden", "forQueue": "theirs"}) for team in teams]
    answers = [
        told.queues([queue(team, first, *held) for team in teams]),
        told.queue(queue("open", first, *held)),
        told.places([named(team, position=1, of=1) for team in teams]),
        told.picks({"items": [pick(number, team) for number, team in enumerate(teams)], "pool": {}, "waiting": 1}),
        told.job(named("ours", holders=held, growth={"holders": held})),
        told.plan({"resizes": resizes, "claims": [*map(named, teams)], "unchanged": [*map(named, teams)]}),
    ]
    text = json.dumps(answers)
    assert not [secret for secret in SECRETS if secret in text]
