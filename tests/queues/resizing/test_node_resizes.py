"""Workers and jobs that give room back where nodes count: only if the pods of the waiting job find nodes then."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from crds.resources.amounts import PODS
from queues.placement import assignment, kept_nodes
from queues.placement.gangs import EVERY, Gang, Members, Shape
from queues.placement.node_room import NodeRoom
from queues.placement.places import Places, WorkerPod
from queues.resizing import recall_search
from queues.resizing.recall_search import HeldRoom
from queues.resizing.values import Plan
from queues.values import Entry
from tests.support.clock import START
from tests.support.queues.builders import GPU, entry, key, specs
from tests.support.queues.elastic_scene import Scene, elastic

A, B = specs(a=1, b=1)
Workers = Mapping[str, Sequence[int]]
"""By job, the node of each worker but the first, which has none here: in the order of their indexes."""


def shape(gpu: int) -> Shape:
    return Shape(((GPU, gpu), (PODS, 1)))


def gang(pods: int, gpu: int) -> Gang:
    return Gang((Members(shape(gpu), pods),))


def pods_of(name: str, nodes: Sequence[int]) -> list[WorkerPod]:
    """Return the workers of a job in the order in which the job loses them by itself."""
    found = [WorkerPod(f"{name}-worker-{n}", f"n{node}", shape(1).demand) for n, node in enumerate(nodes, 1)]
    return found[::-1]


def places_of(sizes: Sequence[int], workers: Workers, gangs: Mapping[str, Gang], other: Sequence[int] = ()) -> Places:
    """Return nodes with these GPUs, on which these workers run; `other` pods use GPUs, by node."""
    by_key = {str(key(name)): pods_of(name, nodes) for name, nodes in workers.items()}
    known = {str(key(name)): found for name, found in gangs.items()}
    racks = {"r0": 0b0011, "r1": 0b1100}
    rooms = NodeRoom(lambda _: EVERY, lambda _: racks), NodeRoom(lambda _: EVERY, lambda _: racks)
    places = Places(*rooms, lambda name, *_: known.get(name), workers_of=lambda name: by_key.get(name, ()))
    for number, size in enumerate(sizes):
        for room in rooms:
            room.set_capacity(room.index(f"n{number}"), {GPU: size, PODS: 100})
    for name, pods in by_key.items():
        places.follow(name, Counter((places.room.index(pod.node), pod.demand) for pod in pods), None, None)
    for node, used in enumerate(other):
        places.room.use(node, ((GPU, used),), 1)
    return places


def scene(sizes: Sequence[int], workers: Workers, waiting: tuple[Entry, Gang], **more: object) -> Scene:
    """Return idle workers of queue a, and a waiting job of queue b. Each job has one worker more, on no node."""
    head, wanted = waiting
    jobs = [
        elastic(name, workers=len(nodes) + 1, idle=len(nodes), most=99, least=1, unit={GPU: 1, PODS: 1})
        for name, nodes in workers.items()
    ]
    places = places_of(sizes, workers, {head.key.name: wanted})
    pool = {GPU: sum(sizes) + len(jobs), PODS: 1_000}
    found = Scene(queues=(A, B), pool=pool, jobs=jobs, waiting=[head], places=places)
    return replace(found, **more)  # type: ignore[arg-type]


def claimant(pods: int, gpu: int) -> tuple[Entry, Gang]:
    return entry("head", "b", gpu=pods * gpu, pods=pods), gang(pods, gpu)


def victims(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {resize.key.name: resize.victims for resize in plan.resizes}


def test_workers_on_many_nodes_are_not_asked_for_a_job_that_needs_one_node() -> None:
    spread = scene([1] * 8, {"x": range(8)}, claimant(1, 8))
    plan = spread.plan()
    assert (plan.resizes, plan.hasten) == ((), {})
    assert replace(spread, places=None).sizes() == {"x": 1}, "by amounts alone, they would leave in vain"


def test_the_workers_on_one_node_are_asked_and_named() -> None:
    mixed = {"x": [0, 1, 0, 2, 0, 0, 3, 0], "y": [0, 0, 0]}
    plan = scene([8, 1, 1, 1], mixed, claimant(1, 8)).plan()
    assert {resize.key.name: resize.workers for resize in plan.resizes} == {"x": 4, "y": 1}
    assert set(victims(plan)["x"]) == {f"x-worker-{index}" for index in (1, 3, 5, 6, 8)}
    assert (plan.hasten, plan.nodes and plan.nodes.nodes) == ({"b": key("head")}, ("n0",))


def test_a_job_that_lacks_nodes_and_no_amounts_is_given_a_node() -> None:
    plan = scene([8, 8], {"x": [0, 1] * 4}, claimant(1, 8)).plan()
    assert [(resize.workers, len(resize.victims)) for resize in plan.resizes] == [(5, 4)]
    assert len({int(name[-1]) % 2 for name in victims(plan)["x"]}) == 1


def test_the_workers_of_one_rack_are_asked_for_a_job_that_requires_one() -> None:
    workers = {"x": [0, 1, 1, 1, 1, 2, 2, 3, 3]}
    head, pair = claimant(2, 4)
    anywhere = victims(scene([4] * 4, workers, (head, pair)).plan())["x"]
    assert len(anywhere) == 3, "one on n0, and two on n2 or n3"
    in_one_rack = scene([4] * 4, workers, (head, replace(pair, required="rack"))).plan()
    assert set(victims(in_one_rack)["x"]) == {f"x-worker-{index}" for index in (6, 7, 8, 9)}
    assert in_one_rack.nodes is not None
    assert in_one_rack.nodes.nodes == ("n2", "n3")


def test_a_job_with_more_workers_on_the_node_than_it_may_lose_is_not_asked() -> None:
    few = scene([8], {"x": [0] * 8}, claimant(1, 8))
    assert replace(few, jobs=[replace(few.jobs[0], least=2, idle=7)]).plan().resizes == ()


def test_workers_on_their_way_out_count_with_their_nodes() -> None:
    found = scene([8, 8], {"x": [0] * 8, "y": [1] * 8}, claimant(1, 8))
    leaving = [replace(found.jobs[0], leaving=8, leaving_for=key("head")), found.jobs[1]]
    plan = replace(found, jobs=leaving).plan()
    assert (plan.resizes, plan.needed) == ((), {key("x")})
    assert plan.nodes is not None
    assert plan.nodes.nodes == ("n0",)


def test_the_nodes_that_are_freed_for_a_job_are_kept_for_it_while_plans_say_so() -> None:
    found = scene([8, 8], {"x": [0] * 8, "y": [1] * 4}, claimant(1, 8))
    places, head = found.places, str(key("head"))
    assert places is not None
    places.promised = found.plan().nodes
    kept_nodes.keep(places, head, gang(1, 8), START, 60.0)
    assert kept_nodes.names_of(places) == ["n1"]
    kept_nodes.keep(places, head, gang(1, 8), START + 60, 60.0)
    assert kept_nodes.names_of(places) == [], "nothing is expected to end"


def test_only_the_unbound_job_whose_places_help_gives_them_back() -> None:
    places = places_of([8, 8], {}, {"head": gang(1, 8)}, other=[0, 4])
    for name, node in (("vain", 1), ("helps", 0)):
        places.take(str(key(name)), None)
        places.follow(str(key(name)), Counter({(node, shape(4).demand): 1}), None, None)
    waiting = [claimant(1, 8)[0]]
    found = Scene(queues=(A, B), pool={GPU: 16, PODS: 99}, rigid={"a": 12}, waiting=waiting, places=places)
    held = [HeldRoom(key(name), "a", {GPU: 4}) for name in ("vain", "helps")]
    assert recall_search.find(found.picker(), held, (), (), START) == (key("helps"),)
    assert recall_search.find(replace(found, places=None).picker(), held, (), (), START) == (key("vain"),)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.lists(st.integers(0, 3), max_size=4),
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
    st.integers(1, 3),
    st.integers(1, 4),
)
@settings(max_examples=150)
def test_who_gives_lets_the_job_start_and_no_fewer_workers_would_do(
    first: list[int], second: list[int], free: list[int], pods: int, gpu: int
) -> None:
    workers, used = {"x": first, "y": second}, Counter([*first, *second])
    found = scene([used[node] + free[node] for node in range(4)], workers, claimant(pods, gpu))
    owned = [pod for name, nodes in workers.items() for pod in pods_of(name, nodes)]
    places = found.places
    assert places is not None

    def starts(gone: Sequence[WorkerPod]) -> bool:
        room = places.room.copy()
        for pod in gone:
            room.use(room.index(pod.node), pod.demand, -1)
        return assignment.fits(room, gang(pods, gpu).members)

    able, is_placed = starts(owned), starts(())
    sets = ([pod for n, pod in enumerate(owned) if bits >> n & 1] for bits in range(1 << len(owned)))
    least = min((len(gone) for gone in sets if starts(gone)), default=0)
    plan = found.plan()
    back = [resize for resize in plan.resizes if resize.reason == "GiveBack"]
    assert bool(back) == (able and not is_placed)
    named = {name for resize in back for name in resize.victims}
    assert sum(job.workers - resize.workers for job in found.jobs for resize in back if resize.key == job.key) == least
    if back:
        assert len(named) == least
