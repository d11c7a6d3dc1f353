"""The properties of every plan, computed again from usage, quotas and the pool alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from queues.resizing.values import ElasticJob, Plan, digest
from queues.values import Entry, QueueSpec
from tests.support.clock import START
from tests.support.queues.builders import GPU, entry
from tests.support.queues.elastic_scene import Scene, elastic, with_gpus

QUEUES = "abc"


@st.composite
def jobs(draw: st.DrawFn, queues: Sequence[str]) -> list[ElasticJob]:
    found = []
    for number in range(draw(st.integers(1, 5))):
        step, unit = draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 1, 2]))
        least, above, more = draw(st.integers(1, 3)), draw(st.integers(0, 3)) * step, draw(st.integers(0, 3)) * step
        job = elastic(
            f"e{number}",
            draw(st.sampled_from(queues)),
            workers=least + above,
            least=least,
            most=least + above + more,
            idle=draw(st.integers(0, above)),
            unit={GPU: unit},
            step=step,
            priority=draw(st.integers(0, 2)),
            autoscale=draw(st.integers(0, 3)) > 0,
            busy=draw(st.sampled_from(["", "", "", "Restarting"])),
            submitted=START + number,
        )
        found.append(job)
    return found


@st.composite
def scenes(draw: st.DrawFn, heads: int = 6) -> Scene:
    names = QUEUES[: draw(st.integers(1, 3))]
    cohort = draw(st.sampled_from(["", "all"]))
    running = draw(jobs(names))
    rigid = {name: draw(st.integers(0, 3)) for name in names}
    scene = Scene(queues=[QueueSpec(name=name) for name in names], jobs=running, rigid=rigid)
    used = scene.usage(running)
    specs = [
        with_gpus(name, max(1, used[name].get(GPU, 0) + draw(st.integers(-3, 3))), cohort=cohort)
        if draw(st.booleans())
        else QueueSpec(name=name, weight=draw(st.integers(1, 3)))
        for name in names
    ]
    began = START - draw(st.sampled_from([0, 99]))
    waiting = [
        entry(f"w{n}", draw(st.sampled_from(names)), began + n, draw(st.integers(0, 2)), gpu=draw(st.integers(1, 6)))
        for n in range(draw(st.integers(0, heads)))
    ]
    pool = draw(st.sampled_from([None, {GPU: used[""].get(GPU, 0) + draw(st.integers(0, 2))}]))
    reserved = draw(st.sampled_from(["", *{each.queue for each in waiting}]))
    return replace(scene, queues=specs, pool=pool, waiting=waiting, reserved=reserved)


def sizes(plan: Plan) -> dict[str, int]:
    return {resize.key.name: resize.workers for resize in plan.resizes}


def fits(scene: Scene, job: Entry, resized: Mapping[str, int], beside: int = 0) -> bool:
    """Return whether a waiting job fits once jobs have these sizes. The job must fit into its quota or cohort, and into
    the pool, in which other waiting jobs take `beside` GPUs.
    """
    used = {name: each.get(GPU, 0) for name, each in scene.usage(scene.gone(resized).jobs).items()}
    demand = job.demand[GPU]
    spec = next(spec for spec in scene.queues if spec.name == job.queue)
    members = [each for each in scene.queues if each.cohort and each.cohort == spec.cohort and GPU in each.quota]
    if GPU in spec.quota and not spec.cohort and used[spec.name] + demand > spec.quota[GPU]:
        return False
    total = sum(each.quota[GPU] for each in members)
    if GPU in spec.quota and spec.cohort and sum(used[each.name] for each in members) + demand > total:
        return False
    return scene.pool is None or used[""] + beside + demand <= scene.pool[GPU]


@given(scenes())
@settings(max_examples=60)
def test_each_job_is_resized_once_in_its_range_and_steps(scene: Scene) -> None:
    plan = scene.plan()
    by_name = {job.key.name: job for job in scene.jobs}
    assert len(sizes(plan)) == len(plan.resizes)
    for resize in plan.resizes:
        job = by_name[resize.key.name]
        grows = resize.workers > job.workers
        assert not job.busy
        assert job.least <= resize.workers <= max(job.workers, job.most)
        assert (resize.workers - job.workers) % job.step == 0
        assert (resize.reason == "Idle") == grows
        assert job.autoscale or job.workers - resize.workers in range(1, job.idle + 1)


@given(scenes(heads=1))
@settings(max_examples=60)
def test_one_waiting_job_fits_after_what_is_given_and_needs_every_step(scene: Scene) -> None:
    plan = scene.plan()
    given_back = {resize.key.name: resize.workers for resize in plan.resizes if resize.reason == "GiveBack"}
    assert given_back or (not plan.claims and not plan.hasten)
    if not given_back:
        return
    [job] = scene.waiting
    assert not fits(scene, job, {})
    assert fits(scene, job, given_back)
    for name, size in given_back.items():
        step = next(each.step for each in scene.jobs if each.key.name == name)
        assert not fits(scene, job, {**given_back, name: size + step})


@given(scenes(heads=1))
@settings(max_examples=60)
def test_no_waiting_job_is_kept_out_by_idle_growth_that_can_go(scene: Scene) -> None:
    """A job that would fit without any idle growth fits after the plan."""
    able = [job for job in scene.jobs if not job.busy and job.step == 1]
    least = {job.key.name: job.workers - job.idle for job in able}
    for job in scene.waiting:
        if fits(scene, job, least):
            assert fits(scene, job, scene.sizes())


@given(scenes())
@settings(max_examples=60)
def test_plan_that_is_under_way_asks_for_nothing_more(scene: Scene) -> None:
    plan = scene.plan()
    back = {resize.key.name: resize for resize in plan.resizes if resize.reason == "GiveBack"}
    under_way = [
        replace(job, leaving=job.workers - mine.workers, leaving_for=digest(mine.for_key), busy="Resizing", yields=True)
        if (mine := back.get(job.key.name)) is not None and mine.for_key is not None
        else replace(job, resting_until=START + 99)
        for job in scene.jobs
    ]
    again = replace(scene, jobs=under_way).plan()
    assert again.resizes == ()
    assert again.needed == {resize.key for resize in back.values()}
    assert again.claims == plan.claims


@given(scenes(heads=1))
@settings(max_examples=60)
def test_plan_that_was_carried_out_is_followed_by_an_empty_one(scene: Scene) -> None:
    resized = {resize.key.name: resize.workers for resize in scene.plan().resizes}
    grown = [
        replace(job, idle=job.idle + max(0, resized.get(job.key.name, 0) - job.workers))
        for job in scene.gone(resized).jobs
    ]
    after = replace(scene, jobs=[replace(job, resting_until=START + 99) for job in grown])
    plan = after.plan()
    assert (plan.resizes, plan.claims, plan.hasten) == ((), {}, {})


@given(scenes())
@settings(max_examples=60)
def test_growth_leaves_room_for_what_is_reserved_and_claimed(scene: Scene) -> None:
    plan = scene.plan()
    grown = {resize.key.name: resize.workers for resize in plan.resizes if resize.reason == "Idle"}
    used = {name: each.get(GPU, 0) for name, each in scene.usage(scene.gone(grown).jobs).items()}
    if not grown:
        return
    queues = scene.picker().queues(START)
    for spec in scene.queues:
        first = queues[spec.name].first
        kept = first.demand[GPU] if first is not None and spec.name == scene.reserved else 0
        holds = scene.picker().reservation_holder == spec.name
        if holds and scene.pool is not None:
            assert used[""] + kept <= scene.pool[GPU]
        if GPU in spec.quota and not spec.cohort and any(job.queue == spec.name for job in scene.jobs):
            before = scene.usage(scene.jobs)[spec.name].get(GPU, 0)
            assert used[spec.name] <= max(spec.quota[GPU], before)
