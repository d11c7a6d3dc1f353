"""Collected room: a cohort leaves room for one job that has to borrow, for a time, and no member loses its quota."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.pick_cycle import PickCycle
from queues.picking.picker import Picker
from queues.resizing.room import Room
from queues.rules import Patience, PickRules
from queues.store import QueueStore
from queues.values import Entry, OvertakenJob, QueueSpec
from tests.doubles.memory_store import MemoryStore
from tests.queues.conftest import Place
from tests.support.queues.builders import GPU, START, choose, commit, entry, key, opened, reservation, spec

RULES = PickRules(cost=GPU)
LARGE = entry("large", "x", START, gpu=8)


def member(name: str, quota: int = 4, **changes: object) -> QueueSpec:
    return replace(spec(name, gpu=quota), cohort="team", **changes)  # type: ignore[arg-type]


@dataclass
class Team:
    """A simulated cohort, some of whose queues submit jobs of one GPU without end."""

    queues: Sequence[QueueSpec]
    endless: Mapping[str, int]
    """By queue, for how many seconds each of its jobs runs."""
    now: float = START
    begun: dict[JobKey, float] = field(default_factory=dict)
    idle: int = 0
    """The unused GPUs, multiplied by seconds."""
    made: int = 0

    def __post_init__(self) -> None:
        self.store = MemoryStore(lambda *_: None)
        self.store.rebuild(1, [], [])
        self.store.configure(self.queues, None)
        self.lead()

    def lead(self) -> None:
        """Replace the leader."""
        self.rounds = PickCycle(self.store, RULES, ages=self._ages)

    def _ages(self, now: float) -> Mapping[str, Sequence[float]]:
        ages: dict[str, list[float]] = {}
        for each, held in self.store.reservations().items():
            ages.setdefault(held.queue, []).append(now - self.begun.get(each, now))
        return ages

    def second(self) -> None:
        """Simulate one second: end jobs, submit new ones, start all that may, and add up what is idle."""
        self.now += 1
        held = self.store.reservations()
        over = [each for each, since in self.begun.items() if self.now >= since + self._seconds(each)]
        self.store.remove([each for each in over if each in held])
        for each in over:
            del self.begun[each]
        for view in self.store.snapshot(0).queues:
            for _ in range(view.waiting, 24 if view.spec.name in self.endless else 0):
                self.made += 1
                self.store.put([entry(f"{view.spec.name}-{self.made}", view.spec.name, self.now, gpu=1)])
        while self.rounds.run(self.now, 99, 99).picked:
            pass
        for each in self.store.reservations():
            self.begun.setdefault(each, self.now)
        self.idle += sum(view.spec.quota[GPU] - view.usage.get(GPU, 0) for view in self.store.snapshot(0).queues)

    def _seconds(self, job: JobKey) -> float:
        queue, _, number = job.name.partition("-")
        # The ends are spread in time, as if the jobs had begun at many moments.
        return self.endless[queue] * (0.5 + int(number) * 37 % 100 / 100) if queue in self.endless else 1e9

    def run(self, seconds: int, until: Callable[[], bool] = lambda: False) -> int:
        """Simulate seconds until a condition holds, and return how many passed."""
        for passed in range(seconds):
            if until():
                return passed
            self.second()
        return seconds

    @property
    def records(self) -> dict[str, OvertakenJob]:
        return records(self.store)

    @property
    def collecting(self) -> list[str]:
        return [name for name, record in self.records.items() if record.collected_until]

    def holds(self, name: str) -> bool:
        return key(name) in self.store.reservations()


def records(store: QueueStore) -> dict[str, OvertakenJob]:
    return {view.spec.name: view.overtaken for view in store.snapshot(0).queues if view.overtaken is not None}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("seconds", [2, 60])
def test_a_job_that_has_to_borrow_begins_beside_an_endless_stream_of_loans(seconds: int, strict: bool) -> None:
    """Three of six queues take the whole cohort. The job needs 8 GPUs, of which its queue has 4."""
    queues = [*map(member, "abcef"), member("x", strict=strict)]
    team = Team(queues, dict.fromkeys("abc", seconds))
    team.run(5 * seconds)
    assert team.idle <= 24 * seconds, "the three borrow all that there is"
    team.store.put([LARGE])
    assert team.run(5 * seconds + 30, lambda: team.holds("large")) < 4 * seconds + 5
    team.run(9)
    assert team.collecting == []


def never_fitting() -> Team:
    """Return a cohort of 12 in which one queue uses its own 4 for ever, and another borrows whatever it gets."""
    team = Team([*map(member, "abx")], {"a": 10})
    team.store.put([entry("endless", "b", gpu=4)])
    team.run(20)
    team.store.put([replace(LARGE, demand={"jobs": 1, GPU: 9})])
    return team


def test_room_is_collected_for_a_bounded_time_beside_a_lender_that_never_ends() -> None:
    team = never_fitting()
    team.idle = 0
    begun: list[float] = []
    for _ in range(4_000):
        before = team.collecting
        team.second()
        if team.collecting and not before:
            begun.append(team.now)
    assert not team.holds("large")
    assert team.records["x"].uncollected == len(begun) == 7
    gaps = [later - earlier for earlier, later in pairwise(begun)]
    assert all(later > 1.5 * earlier for earlier, later in pairwise(gaps))
    assert team.idle <= len(begun) * 35 * 4, "4 GPUs, 30 seconds each time"


def test_the_next_job_of_a_queue_inherits_the_pause() -> None:
    """An owner withdraws each job before the collection is over."""
    team = never_fitting()
    team.idle = 0
    job = 0
    for _ in range(4_000):
        team.second()
        if team.collecting and team.now > team.records["x"].collected_until - 3:
            job += 1
            team.store.remove([key("large"), key(f"large-{job - 1}")])
            team.store.put([replace(LARGE, key=key(f"large-{job}"), submitted=team.now, demand={"jobs": 1, GPU: 9})])
    assert 3 < job < 8
    assert team.idle <= job * 35 * 4


def test_a_queue_whose_job_began_with_collected_room_pauses_no_more() -> None:
    store, rounds = collecting()
    store._content.overtaken["x"] = replace(records(store)["x"], uncollected=5)
    rounds = PickCycle(store, RULES)
    store.remove([key(f"held-{number}") for number in range(7)])
    assert picked(rounds, START + 21) == ["large"]
    assert records(store)["x"].uncollected == records(store)["x"].collected_until == 0


def picked(rounds: PickCycle, now: float) -> list[str]:
    """Run one round, and return the names of the jobs that were picked."""
    result = rounds.run(now, 99, 99)
    assert not result.refused
    return [each.key.name for each in result.reservations]


QUEUES = [member("a"), member("b"), member("x")]
AGES = {"a": [10.0]}


def collecting(store: MemoryStore | None = None) -> tuple[MemoryStore, PickCycle]:
    """Return a cohort of 12 that collects since 10 seconds after START: queue a has all but one, which it borrows."""
    waiting = [LARGE, *(entry(f"a-{number}", "a", START + number, gpu=1) for number in range(20))]
    held = [reservation(f"held-{number}", "a", gpu=1) for number in range(11)]
    store = store or MemoryStore(lambda *_: None)
    store.rebuild(1, held, waiting)
    store.configure(QUEUES, None)
    rounds = PickCycle(store, RULES, ages=lambda _: AGES)
    assert picked(rounds, START) == ["a-0"], "a loan passes the large job for the first time"
    assert records(store) == {"x": OvertakenJob(key=LARGE.key, times=1, since=START)}
    store.remove([key("held-10")])
    assert picked(rounds, START + 9) == ["a-1"]
    store.remove([key("held-9")])
    assert picked(rounds, START + 10) == []
    record = OvertakenJob(key=LARGE.key, times=1, since=START, late=True, collected_until=START + 40)
    assert records(store) == {"x": record}
    return store, rounds


def test_a_lender_that_comes_back_has_its_quota_at_once() -> None:
    store, rounds = collecting()
    store.remove([key(f"held-{number}") for number in range(4)])
    store.put([entry(f"b-{number}", "b", START, gpu=1) for number in range(6)])
    assert sorted(picked(rounds, START + 10)) == ["b-0", "b-1", "b-2", "b-3"], "its own quota, and no loan"


def test_a_new_leader_goes_on_with_a_collection_and_ends_it_in_time(place: Place) -> None:
    store = place.open()
    collecting(store)  # type: ignore[arg-type]
    assert picked(PickCycle(store, RULES, ages=lambda _: AGES), START + 39) == []
    assert choose(store.snapshot(99), START + 39, 9, RULES).picks == (), "a forecast sees it, too"
    assert picked(PickCycle(store, RULES, ages=lambda _: AGES), START + 40) == ["a-2"]
    record = records(store)["x"]
    assert (record.collected_until, record.uncollected, record.times) == (0, 1, 1)
    store.remove([key("held-8")])
    assert picked(PickCycle(store, RULES, ages=lambda _: AGES), START + 99) == ["a-3"], "its pause"
    store.remove([key("held-7")])
    assert picked(PickCycle(store, RULES, ages=lambda _: AGES), START + 100) == []
    assert records(store)["x"].collected_until == START + 130


def leave(store: MemoryStore) -> None:
    store.remove([LARGE.key])


def displace(store: MemoryStore) -> None:
    store.put([entry("urgent", "x", START, 9, gpu=7)])


def hold(store: MemoryStore) -> None:
    store.configure([*QUEUES[:2], replace(QUEUES[2], open=False)], None)


def forbid(store: MemoryStore) -> None:
    store.configure([*QUEUES[:2], replace(QUEUES[2], borrowing={GPU: 2})], None)


@pytest.mark.parametrize("end", [leave, displace, hold, forbid])
def test_collected_room_is_free_at_once_when_its_job_does_not_wait_for_it_any_more(
    end: Callable[[MemoryStore], None],
) -> None:
    store, rounds = collecting()
    end(store)
    assert picked(rounds, START + 12) == ["a-2"]
    assert picked(PickCycle(store, RULES, ages=lambda _: AGES), START + 13) == []
    assert not any(record.collected_until for record in records(store).values())


def test_the_job_that_was_passed_first_collects_and_the_others_after_it() -> None:
    team = Team([*map(member, "abxyz")], {"a": 10})
    team.run(20)
    team.store.put([replace(LARGE, key=key(name), queue=name, demand={"jobs": 1, GPU: 17}) for name in "zyx"])
    team.store.put([entry("endless", "b", gpu=4)])
    seen: list[str] = []
    for _ in range(300):
        team.second()
        assert len(team.collecting) <= 1
        seen += [name for name in team.collecting if seen[-1:] != [name]]
    assert seen[:3] == ["x", "y", "z"]


def test_no_room_is_collected_for_a_job_that_its_own_queue_keeps_from_borrowing() -> None:
    """The queue may borrow 4, and its own job, which may never end, uses 2 of its quota."""
    queues = [member("a"), member("b"), member("x", borrowing={GPU: 4})]
    team = Team(queues, {"a": 10})
    team.store.put([entry("mine", "x", gpu=2)])
    team.second()
    team.store.put([LARGE])
    team.run(100)
    assert team.records.get("x") is None
    team.store.remove([key("mine")])
    assert team.run(60, lambda: team.holds("large")) < 60


def test_no_room_is_collected_for_a_job_that_fits_its_own_quota() -> None:
    team = Team([*map(member, "ab"), member("x", 8)], {"a": 10})
    team.store.put([entry("mine", "x", gpu=2)])
    team.second()
    team.store.put([LARGE])
    assert team.run(100, lambda: bool(team.collecting)) == 100


def test_other_jobs_of_the_queue_leave_what_is_collected() -> None:
    store, rounds = collecting()
    store.put([entry("small", "x", START + 1, gpu=1), entry("cpu", "x", START + 2, cpu=1)])
    store.remove([key(f"held-{number}") for number in range(3)])
    assert picked(rounds, START + 12) == ["cpu"]
    store.remove([key(f"held-{number}") for number in range(3, 9)])
    assert sorted(picked(rounds, START + 12)) == ["a-2", "a-3", "large"], "a uses its own quota"


# Against a new picker, and against a cohort that never collects

NAMES = "abcd"


@st.composite
def jobs(draw: st.DrawFn) -> Entry:
    queue, number = draw(st.sampled_from(NAMES)), draw(st.integers(0, 9))
    size = draw(st.sampled_from([1, 1, 1, 3, 6, 9]))
    return entry(f"{queue}-{number}", queue, START, draw(st.integers(0, 1)), gpu=size)


def change(store: MemoryStore, data: st.DataObject) -> None:
    match data.draw(st.sampled_from(["put", "put", "end", "end", "end", "leave", "nothing"])):
        case "put":
            store.put(data.draw(st.lists(jobs(), max_size=8)))
        case "end":
            held = sorted(store.reservations())
            store.remove(held[: data.draw(st.integers(1, 4))])
        case "leave":
            store.remove([each.key for each in data.draw(st.lists(jobs(), max_size=3))])


@st.composite
def members(draw: st.DrawFn) -> list[QueueSpec]:
    return [
        member(
            name,
            draw(st.integers(0, 5)),
            strict=draw(st.booleans()),
            open=draw(st.sampled_from([True, True, True, False])),
            borrowing=draw(st.sampled_from([{}, {}, {GPU: 5}])),
        )
        for name in NAMES
    ]


@pytest.mark.proof
@settings(max_examples=150, deadline=None)
@given(data=st.data(), pool=st.sampled_from([None, None, {GPU: 12}]))
def test_a_picker_that_collects_picks_what_a_new_one_picks_and_refuses_loans_alone(
    data: st.DataObject, pool: Amounts | None
) -> None:
    store = opened(data.draw(members()), data.draw(st.lists(jobs(), min_size=8, max_size=30)), pool)
    snapshot, now = store.snapshot(99), START
    picker, known = Picker(snapshot, RULES), snapshot.change
    for _ in range(12):
        now += data.draw(st.sampled_from([0, 1, 40, 90]))
        if data.draw(st.integers(0, 9)):
            change(store, data)
        else:
            store.configure(data.draw(members()), pool)
        picker.update(store.snapshot(99, since=known, known_heads=picker.needs_entries))
        patience = Patience(30.0, dict.fromkeys(NAMES, data.draw(st.sampled_from([0.0, 5.0, 50.0]))))
        new = Picker(store.snapshot(99), RULES)
        picker.patience = new.patience = patience
        batch, afresh = picker.picks(now, 9), new.picks(now, 9)
        assert (batch.picks, batch.settlement) == (afresh.picks, afresh.settlement)
        committed = commit(store, batch)
        assert (committed.refused, committed.picked) == ("", len(batch.picks))
        known = committed.change
        assert sum(record.collected_until > 0 for record in records(store).values()) <= 1
        if len(batch.picks) < 9 and pool is None:
            check_own_quotas(store)


def check_own_quotas(store: MemoryStore) -> None:
    """Check that no first job waits that its own quota and the usage of the cohort allow."""
    views = store.snapshot(99).queues
    total = sum(view.spec.quota[GPU] for view in views)
    free = total - sum(view.usage.get(GPU, 0) for view in views)
    for view in (view for view in views if view.spec.open):
        size = next((head.demand[GPU] for head in view.heads if head.demand[GPU] <= total), total + 1)
        assert size > min(free, view.spec.quota[GPU] - view.usage.get(GPU, 0))


def test_a_plan_of_resizes_leaves_what_is_collected_and_counts_it_once() -> None:
    """Of 12 GPUs 11 are used; the job for which 8 are collected lacks 7."""
    store, _ = collecting()
    picker = Picker(store.snapshot(99), RULES)
    room = Room(picker, picker.queues(START + 11), ())
    collector, other = room.queues["x"], room.queues["a"]
    assert room.lacking("cohort", collector, LARGE.demand) == {GPU: 7}
    assert room.lacking("cohort", other, {GPU: 1}) == {GPU: 8}
    assert collector.first is not None
    room.satisfy(collector, collector.first)
    assert room.lacking("cohort", collector, LARGE.demand) == {GPU: 7}
    assert room.lacking("cohort", other, {GPU: 1}) == {}
