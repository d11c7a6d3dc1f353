"""Fairness against manipulation: no queue gains by the time or the way in which it submits or withdraws its jobs.

The benchmark's `bench.benchmarks.games.orders.Fluid` computes the fluid share from the picks alone.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.benchmarks.games.orders import Fluid
from crds.keys import JobKey
from queues.pick_cycle import PickCycle
from queues.picking.fair_share import FairShare, lag
from queues.picking.grouped_index import Bid
from queues.picking.picker import Picker
from queues.redis import codec
from queues.rules import PickRules
from queues.values import ACCOUNT_SCHEME, Account, Clock, Entry, QueueSpec
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import (
    GPU,
    START,
    choose,
    commit,
    entries,
    entry,
    further,
    order,
    reservation,
    run,
    spec,
    specs,
)

LARGE = 64
PLAYER = "player"
BY_GPU = PickRules(cost=GPU)


class Table:
    """Queues in a store. Every pick is compared with the fluid share."""

    def __init__(self, room: int | None = None, **weights: int) -> None:
        """`room` is the number of GPUs of the pool; None means unlimited GPUs."""
        self.room = room
        self.store = MemoryStore(lambda *_: None)
        self.store.rebuild(1, [], [])
        self.weights = weights
        self.away: set[str] = set()
        """The queues that are not configured at the moment."""
        self.configure()
        self.fluid = Fluid()
        self.waiting: dict[str, list[JobKey]] = {name: [] for name in weights}
        self.served = dict.fromkeys(weights, 0)
        self.over = 0.0
        """The GPUs or jobs that the player got above its share by weight, in the interval up to now with the largest
        excess.
        """
        self.worst = 0.0
        self.largest = 0
        """The largest first job of a queue at any pick."""
        self._numbers = count()

    def configure(self) -> None:
        self.store.configure(
            specs(**{name: each for name, each in self.weights.items() if name not in self.away}),
            None if self.room is None else {GPU: self.room},
        )

    def show(self, queue: str, *gpus: int) -> None:
        numbers = [next(self._numbers) for _ in gpus]
        named = zip(gpus, numbers, strict=True)
        shown = [entry(f"{queue}-{at:06}", queue, START + at, gpu=gpu) for gpu, at in named]
        self.waiting[queue] += [each.key for each in shown]
        self.store.put(shown)

    def show_range(self, queue: str, least: int, most: int) -> None:
        at = next(self._numbers)
        shown = further(entry(f"{queue}-{at:06}", queue, START + at, gpu=least), most, step=2, gpu=3)
        self.waiting[queue].append(shown.key)
        self.store.put([shown])

    def waits(self, queue: str) -> int:
        return len(self.waiting[queue])

    def hide(self, queue: str) -> None:
        self.store.remove(self.waiting[queue])
        self.waiting[queue] = []

    def pick(self, cost: str = GPU) -> str:
        """Make one pick and return its queue, or the empty string if no queue contends."""
        shown = self.store.snapshot(8)
        contending = {view.spec.name: view.spec.weight for view in shown.queues if view.waiting}
        for each in run(self.store, 1, cost=cost):
            price = each.charge[GPU] if cost == GPU else 1
            heads = [self._amount(view.heads[0].entry) for view in shown.queues if view.heads]
            self.largest = max(self.largest, *heads) if cost == GPU else 1
            self.fluid.see(contending, each.queue, price)
            self.served[each.queue] += price
            self.waiting[each.queue].remove(each.key)
            self.store.remove([each.key])
            part = self.weights.get(PLAYER, 0) / sum(self.weights.values())
            self.over = max(0.0, self.over + (price if each.queue == PLAYER else 0) - price * part)
            self.worst = max(self.worst, self.over)
            return each.queue
        return ""

    def _amount(self, job: Entry) -> int:
        """Return the GPUs that a job takes at its turn. Every job ends before the next pick."""
        least, units = job.demand[GPU], range(0, job.most + 1, job.step)
        return max(least + 3 * each for each in units if self.room is None or least + 3 * each <= self.room)


# Games: ways in which a queue tries to gain


def one_at_a_time(table: Table) -> None:
    """Submit the next job only after the last job was picked and another queue had a turn."""
    if not table.waits("player"):
        table.pick()
        table.show("player", LARGE)


def hold_and_let_go(table: Table) -> None:
    """Submit two jobs. After the first job is picked, withdraw the second job during one pick."""
    if table.waits("player") == 1:
        table.hide("player")
        table.pick()
    if not table.waits("player"):
        table.show("player", LARGE, LARGE)


def small_then_large(table: Table) -> None:
    """Put a large job in the place of the small job that would win the turn."""
    at = sum(table.served.values())
    table.hide("player")
    table.show("player", *((1, LARGE) if at % 2 else (LARGE, 1)))


def removed_and_made_again(table: Table) -> None:
    """Delete the queue whenever it has no job, and create it again with the next job."""
    if not table.waits("player"):
        table.away = {"player"}
        table.configure()
        table.pick()
        table.away = set()
        table.configure()
        table.show("player", LARGE)


def reweighed(table: Table) -> None:
    """Contend with a changed weight and withdraw before every pick of another queue. Restore the weight afterwards."""
    if not table.waits("player"):
        mine = table.weights["player"]
        table.weights["player"] = 50
        table.configure()
        table.show("player", LARGE)
        table.hide("player")
        table.pick()
        table.weights["player"] = mine
        table.configure()
        table.show("player", LARGE)


@pytest.mark.parametrize(("mine", "theirs"), [(1, 1), (5, 1), (1, 5)])
@pytest.mark.parametrize("play", [one_at_a_time, hold_and_let_go, small_then_large, removed_and_made_again, reweighed])
def test_game_gains_at_most_one_largest_job_over_the_fair_share(
    play: Callable[[Table], None], mine: int, theirs: int
) -> None:
    table = Table(player=mine, other=theirs)
    for _ in range(600):
        table.show("other", *[1] * (3 - table.waits("other")))
        play(table)
        table.pick()
    assert table.served[PLAYER] >= LARGE
    assert table.worst <= LARGE, "the player got more than one job above its share in some interval"


@st.composite
def plays(draw: st.DrawFn) -> list[tuple[str, str, int]]:
    """Generate a history of actions: the action, its queue, and a number (a size, a weight or a number of picks)."""
    queue, size = st.sampled_from("abcdef"), st.sampled_from([1, 1, 2, 7, 32, LARGE])
    happening = st.one_of(
        st.tuples(st.just("show"), queue, size),
        st.tuples(st.just("show"), queue, size),
        st.tuples(st.just("range"), queue, size),
        st.tuples(st.just("hide"), queue, st.just(0)),
        st.tuples(st.just("swap"), queue, size),
        st.tuples(st.just("weigh"), queue, st.integers(1, 50)),
        st.tuples(st.just("remove"), queue, st.just(0)),
        st.tuples(st.just("pick"), queue, st.integers(1, 4)),
        st.tuples(st.just("pick"), queue, st.integers(1, 4)),
    )
    return draw(st.lists(happening, min_size=10, max_size=60))


def happen(table: Table, what: str, queue: str, number: int) -> None:
    if what in ("hide", "swap", "remove"):
        table.hide(queue)
    if what in ("show", "range", "swap"):
        table.away.discard(queue)
        table.configure()
    if what in ("show", "swap"):
        table.show(queue, number)
    if what == "range":
        table.show_range(queue, 1 + number % 7, number)
    if what == "weigh":
        table.weights[queue] = number
    if what == "remove":
        table.away.add(queue)
    if what in ("weigh", "remove"):
        table.configure()


@settings(max_examples=100, deadline=None)
@given(history=plays(), cost=st.sampled_from([GPU, "jobs"]), room=st.sampled_from([None, LARGE]))
def test_no_queue_gets_ahead_of_the_fluid_share_by_more_than_one_largest_job(
    history: list[tuple[str, str, int]], cost: str, room: int | None
) -> None:
    table = Table(room, a=1, b=1, c=5, d=20, e=1, f=3)
    for what, queue, number in history:
        happen(table, what, queue, number)
        for _ in range(number if what == "pick" else 0):
            if picked := table.pick(cost):
                assert table.fluid.ahead.get(picked, 0.0) <= table.largest + 1e-3


@settings(max_examples=40, deadline=None)
@given(history=plays(), weights=st.lists(st.integers(1, 30), min_size=2, max_size=6))
def test_a_queue_of_a_stable_set_is_picked_in_time_after_any_history(
    history: list[tuple[str, str, int]], weights: list[int]
) -> None:
    table = Table(a=1, b=1, c=5, d=20, e=1, f=3)
    for what, queue, number in history:
        happen(table, what, queue, number)
        for _ in range(number if what == "pick" else 0):
            table.pick("jobs")
    table.away = set()
    table.weights = dict(zip("abcdef", weights, strict=False))
    table.configure()
    total = sum(weights)
    longest = max(ceil(2 * total / weight) + 1 for weight in weights)
    for name in table.weights:
        table.show(name, *[1] * (longest + 1))
    names = [table.pick("jobs") for _ in range(longest)]
    for name, weight in table.weights.items():
        assert name in names[: ceil(2 * total / weight) + 1 + len(weights)]


@given(weights=st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_queue_waits_at_most_two_fair_turns_and_one_pick(weights: list[int]) -> None:
    ledger = FairShare(Clock(), {})
    for name, weight in zip("abcdefgh", weights, strict=False):
        ledger.bid(name, Bid(weight, 1))
    ledger.settle()
    names = following(ledger, 1, 4 * sum(weights))
    for name, weight in zip("abcdefgh", weights, strict=False):
        waits = [len(each) for each in names.split(name)]
        assert max(waits) < ceil(2 * sum(weights) / weight) + 1


# Lag of a queue whose job finds no room


def test_a_queue_without_room_gets_behind_by_at_most_one_and_a_half_largest_jobs() -> None:
    ledger = FairShare(Clock(), {})
    ledger.bid("blocked", Bid(1, 8, 1))
    ledger.bid("other", Bid(1, 1, 2))
    ledger.settle()
    ledger.set_state(1, "waiting")
    for _ in range(1000):
        assert ledger.first("open") == ledger.turn("other")
        ledger.pay("other", 1)
    ledger.set_state(1, "open")
    ledger.bid("blocked", Bid(1, 1, 1))  # from here on, the jobs of this queue are small
    assert following(ledger, 1, 60).startswith("b" * 3)
    assert following(ledger, 1, 60).count("b") <= 32


def following(ledger: FairShare, cost: int, picks: int) -> str:
    """Return the first letters of the next queues."""
    names = ""
    for _ in range(picks):
        turn = ledger.first("open")
        assert turn is not None
        ledger.pay(turn[-1], cost)
        names += turn[-1][0]
    return names


def test_a_turn_won_by_a_small_job_does_not_go_to_a_large_one() -> None:
    """The first job of queue x is small and finds no room. The large job behind it would find room."""
    store = MemoryStore(lambda *_: None)
    small = entry("x-small", "x", START, gpu=1, cpu=2)
    waiting = [small, entry("x-large", "x", START + 1, gpu=LARGE), *entries("y", 900, gpu=1)]
    store.rebuild(1, [reservation("runs", "y", cpu=1)], waiting)
    store.configure([spec("x", 1), spec("y", 9)], {GPU: 10_000, "cpu": 2})
    rules = PickRules(cost=GPU)
    picks = Picker(store.snapshot(2_000), rules).picks(START, 600).picks
    names = [pick.waiting.entry.key.name for pick in picks]
    assert 100 < names.index("x-large") < 160


# Refunds and charges


def contending(**bids: int) -> FairShare:
    """Return a ledger with queues of weight 1 and the given costs of their next jobs."""
    ledger = FairShare(Clock(), {})
    for name, cost in bids.items():
        ledger.bid(name, Bid(1, cost))
    ledger.settle()
    return ledger


def behind(ledger: FairShare, name: str) -> float:
    """Return the lag of a queue, from its account as the store encodes it."""
    account = codec.decode_account(codec.encode_account(ledger.account(name)))
    return lag(account, codec.decode_clock(codec.encode_clock(ledger.clock)))


def test_repeated_refunds_leave_a_queue_behind_by_at_most_one_job() -> None:
    ledger = contending(a=8, b=8)
    ledger.pay("a", 8)
    assert behind(ledger, "a") == -4
    for _ in range(20):
        ledger.refund("a", 8)
    assert 0 < behind(ledger, "a") <= 8


def test_refund_to_an_idle_even_queue_changes_nothing() -> None:
    ledger = contending(a=8, b=8)
    ledger.pay("a", 8)
    ledger.bid("a", None)
    ledger.settle()
    ledger.pay("b", 8)
    assert ledger.account("a") == Account()
    ledger.refund("a", 8)
    ledger.bid("a", Bid(1, 8))
    ledger.settle()
    assert behind(ledger, "a") == 0


@pytest.mark.parametrize("away", [False, True])
def test_charge_puts_a_queue_ahead_even_if_it_is_idle(away: bool) -> None:
    ledger = contending(a=8, b=1)
    if away:
        ledger.bid("a", None)
        ledger.settle()
        ledger.pay("b", 1)
    ledger.charge("a", 8, 1)
    ledger.bid("a", Bid(1, 8))
    ledger.settle()
    assert behind(ledger, "a") == -4
    assert behind(ledger, "b") == 4


def test_debt_of_an_idle_queue_ends_when_the_others_have_caught_up() -> None:
    ledger = contending(a=8, b=1)
    ledger.pay("a", 8)
    ledger.bid("a", None)
    ledger.settle()
    for _ in range(7):
        ledger.pay("b", 1)
        assert behind(ledger, "a") < 0
    ledger.pay("b", 1)
    assert ledger.account("a") == Account()
    assert ledger.clock.weights == 1
    again = FairShare(ledger.clock, {"b": ledger.account("b")})
    again.bid("b", Bid(1, 1))
    assert not again.has_unsettled


# Upgrades


def test_accounts_of_an_earlier_version_are_ignored() -> None:
    clock = codec.decode_clock(b"1200 -3 6 swrr")
    accounts = {"a": codec.decode_account(b"-7200 5 1"), "b": codec.decode_account(b"99 1 1")}
    assert clock.scheme != ACCOUNT_SCHEME
    ledger = FairShare(clock, accounts)
    for name, weight in (("a", 5), ("b", 1)):
        ledger.bid(name, Bid(weight, 1))
    ledger.settle()
    assert following(ledger, 1, 6) == "aaabaa"
    assert ledger.clock.scheme == ACCOUNT_SCHEME
    for text in ("x", "1 2 swrr", "a b c swrr"):
        with pytest.raises(ValueError, match=r".+"):
            codec.decode_clock(text)


def test_stored_accounts_of_an_earlier_version_are_replaced_at_the_first_pick() -> None:
    store = MemoryStore(lambda *_: None)
    store.rebuild(1, [], [*entries("a", 9), *entries("b", 9)])
    store.configure([QueueSpec(name="a", weight=5), QueueSpec(name="b")], None)
    content = store._content
    content.clock = codec.decode_clock("1200 -3 6 swrr")
    content.accounts |= {"a": Account(-7200, 5, 1), "gone": Account(5, 1, 1)}
    assert order(commit(store, choose(store.snapshot(9), START, 6, BY_GPU)).reservations) == "aaabaa"
    assert store.snapshot(0).departed == {}


def test_other_queues_share_by_weight_while_one_queue_blocks_itself() -> None:
    """A job that another job of its own queue blocks waits without end, and the lag of its queue keeps growing."""
    store = MemoryStore(lambda *_: None)
    store.rebuild(1, [reservation("long", "blocked", gpu=1)], [])
    store.configure(specs(a=1, b=2, blocked=1), {GPU: 16})
    large = entry("large", "blocked", gpu=16)
    small = [entry(f"{queue}-{number}", queue, gpu=1) for queue in "ab" for number in range(500)]
    store.put([large, *small])
    rounds, picked = PickCycle(store, BY_GPU), Counter[str]()
    for step in range(40):
        assert rounds.run(START + step, 512, 512).picked == 15
        ended = [each for each in store.reservations().values() if each.queue != "blocked"]
        picked.update(each.queue for each in ended)
        store.remove([each.key for each in ended])
    assert abs(picked["b"] - 400) <= 16
    assert picked["a"] + picked["b"] == 600


def test_no_room_is_reserved_for_a_job_that_must_borrow() -> None:
    """Otherwise a lender that repeatedly takes its quota back makes the borrower pay for unused room."""
    store = MemoryStore(lambda *_: None)
    members = [replace(spec(name, gpu=8), cohort="team") for name in ("borrower", "lender")]
    store.rebuild(1, [reservation("long", "a", gpu=1)], [])
    store.configure([*members, spec("a")], {GPU: 16})
    store.put([entry("large", "borrower", gpu=16), *(entry(f"a-{number}", "a", gpu=1) for number in range(300))])
    rounds = PickCycle(store, BY_GPU)
    for step in range(10):
        assert rounds.run(START + 100 * step, 512, 512).picked == 15
        store.remove([each.key for each in store.reservations().values() if each.key.name != "long"])
    [borrower] = [each for each in store.snapshot(1).queues if each.spec.name == "borrower"]
    assert borrower.overtaken is None or borrower.overtaken.kept is None
    store.remove([each.key for each in store.reservations().values()])
    assert [each.key.name for each in rounds.run(START + 2000, 512, 512).reservations] == ["large"]
