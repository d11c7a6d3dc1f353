"""Giving back: each row of the table, the jobs that are not asked to give, and the room that is already on its way."""

from dataclasses import replace

import pytest

from queues.resizing import resize_plan
from queues.resizing.values import ElasticJob, digest
from queues.values import QueueSpec
from tests.support.clock import START
from tests.support.queues.builders import GPU, entry, key, specs
from tests.support.queues.elastic_scene import Scene, elastic, with_gpus

A, B = specs(a=1, b=1)


def pool_scene(gpus: int, *jobs: ElasticJob, queues: tuple[QueueSpec, ...] = (A, B), **more: object) -> Scene:
    """Return a full pool with a waiting job of queue b."""
    waiting = [entry("head", "b", gpu=gpus)]
    pool = {GPU: sum(job.workers for job in jobs)}
    return replace(Scene(queues=queues, pool=pool, jobs=jobs, waiting=waiting), **more)  # type: ignore[arg-type]


# The worked table of `queues.resizing.search`

TABLE = (
    elastic("e1", "a", 5, 2, 8, idle=2),
    elastic("e2", "a", 4, 1, 4, idle=1),
    elastic("e3", "b", 3, 1, 3),
)


@pytest.mark.parametrize(
    ("gpus", "reserved", "sizes"),
    [(1, "", {"e2": 3}), (3, "", {"e2": 3, "e1": 3}), (4, "", {}), (4, "b", {})],
)
def test_worked_table(gpus: int, reserved: str, sizes: dict[str, int]) -> None:
    assert pool_scene(gpus, *TABLE, reserved=reserved).sizes() == sizes


# The queue's quota


def quota_scene(gpus: int, *jobs: ElasticJob, quota: int = 8, priority: int = 0) -> Scene:
    """Return a full quota, and a waiting job of the same queue."""
    return Scene(queues=[with_gpus("a", quota)], jobs=jobs, waiting=[entry("head", gpu=gpus, priority=priority)])


def test_idle_growth_of_the_queue_goes_for_any_priority() -> None:
    scene = quota_scene(2, elastic("old", workers=8, idle=3, priority=9))
    assert scene.sizes() == {"old": 6}
    assert scene.plan().claims == {"a": key("head")}


@pytest.mark.parametrize(("priority", "sizes"), [(0, {}), (1, {}), (2, {"job": 2})])
def test_paid_workers_of_the_queue_go_for_a_higher_priority_alone(priority: int, sizes: dict[str, int]) -> None:
    assert quota_scene(6, elastic("job", workers=8, priority=1), priority=priority).sizes() == sizes


def test_idle_growth_goes_before_paid_workers() -> None:
    jobs = elastic("idle", workers=3, idle=2, most=30), elastic("full", workers=5, most=5)
    assert quota_scene(2, *jobs, priority=5).sizes() == {"idle": 1}
    assert quota_scene(3, *jobs, priority=5).sizes() == {"idle": 1, "full": 4}


def test_job_without_autoscale_gives_idle_growth_alone() -> None:
    job = elastic("job", workers=8, idle=2, autoscale=False)
    assert quota_scene(2, job, priority=5).sizes() == {"job": 6}
    assert quota_scene(3, job, priority=5).sizes() == {}


# The cohort's room


def cohort_scene(gpus: int, *jobs: ElasticJob, quotas: tuple[int, int, int] = (4, 4, 4), **more: object) -> Scene:
    """Return a cohort without room, and a waiting job of its member c."""
    members = [with_gpus(name, quota, cohort="all") for name, quota in zip("abc", quotas, strict=True)]
    scene = Scene(queues=members, jobs=jobs, waiting=[entry("head", "c", gpu=gpus)])
    return replace(scene, **more)  # type: ignore[arg-type]


def test_idle_growth_of_borrowers_goes_before_that_of_other_members() -> None:
    within = elastic("within", "a", workers=4, most=4, idle=3)
    borrower = elastic("borrower", "b", workers=8, most=80, idle=6)
    assert cohort_scene(3, within, borrower).sizes() == {"borrower": 5}
    scene = cohort_scene(1, replace(within, workers=8, idle=4), replace(borrower, workers=4, idle=1))
    assert scene.sizes() == {"within": 7}
    assert scene.plan().claims == {"c": key("head")}


def test_borrowers_give_what_they_have_above_their_quota() -> None:
    scene = cohort_scene(4, elastic("borrower", "a", workers=8, least=4), elastic("within", "b", workers=4))
    assert scene.sizes() == {"borrower": 4}


def test_nobody_gives_paid_workers_to_a_job_that_would_borrow() -> None:
    jobs = elastic("borrower", "a", workers=8), elastic("within", "b", workers=4)
    assert cohort_scene(5, *jobs).sizes() == {}
    assert cohort_scene(5, replace(jobs[0], idle=6), *jobs[1:]).sizes() == {"borrower": 3}


def test_no_queue_gives_what_its_own_quota_covers() -> None:
    jobs = elastic("borrower", "a", workers=8, least=6), elastic("within", "b", workers=4, most=4)
    assert cohort_scene(3, *jobs).sizes() == {}


def test_own_idle_growth_that_uses_the_quota_does_not_turn_a_claim_into_a_loan() -> None:
    own = elastic("own", "c", workers=3, idle=2)
    scene = cohort_scene(3, elastic("borrower", "a", workers=7), elastic("within", "b", workers=2), own)
    assert scene.sizes() == {"own": 1, "borrower": 6}


# The pool


def test_idle_growth_keeps_no_job_out_of_the_pool() -> None:
    scene = pool_scene(3, elastic("job", "a", workers=8, idle=4))
    assert scene.sizes() == {"job": 5}
    assert scene.plan().hasten == {"b": key("head")}
    assert scene.plan().claims == {}


def test_queue_furthest_above_its_share_gives_idle_growth_first() -> None:
    jobs = elastic("small", "b", workers=4, idle=3, most=4), elastic("large", "a", workers=8, idle=7, most=80)
    scene = pool_scene(2, *jobs, queues=(*specs(a=1, b=1, c=1),), waiting=[entry("head", "c", gpu=2)])
    assert scene.sizes() == {"large": 6}


@pytest.mark.parametrize(("reserved", "sizes"), [("", {}), ("b", {"job": 5})])
def test_paid_workers_go_for_the_reservation_alone(reserved: str, sizes: dict[str, int]) -> None:
    assert pool_scene(3, elastic("job", "a", workers=8), reserved=reserved).sizes() == sizes


def test_paid_workers_go_for_a_job_that_nobody_overtakes_once_its_patience_is_over() -> None:
    scene = pool_scene(3, elastic("job", "a", workers=8))
    early, late = scene.plan(START + 29), scene.plan(START + 30)
    assert (early.resizes, dict(early.hasten), early.patient_until) == ((), {}, START + 30)
    assert ([resize.workers for resize in late.resizes], late.hasten) == ([5], {"b": key("head")})
    assert pool_scene(7, elastic("job", "a", workers=8)).plan(START + 30).hasten == {}


def test_no_queue_gives_paid_workers_below_its_share() -> None:
    assert pool_scene(5, elastic("job", "a", workers=8), reserved="b").sizes() == {}


def test_nobody_gives_paid_workers_to_a_queue_above_its_share() -> None:
    other = elastic("other", "b", workers=6, least=6)
    jobs = elastic("job", "a", workers=5), other, elastic("third", "c", workers=1)
    scene = pool_scene(1, *jobs, queues=(*specs(a=1, b=1, c=1),), reserved="b")
    assert scene.sizes() == {}
    idle = replace(other, idle=4, least=2, busy="Restarting")
    assert replace(scene, jobs=[jobs[0], idle, jobs[2]]).sizes() == {"job": 4}


def test_nobody_gives_if_all_is_not_enough() -> None:
    scene = pool_scene(5, elastic("job", "a", workers=6, idle=4), elastic("other", "b", workers=2, least=2))
    assert scene.plan().resizes == ()
    assert scene.plan().hasten == {}


def test_reserved_room_is_not_given_to_others() -> None:
    """Queue b's first job gets the 4 GPUs that are given back. So no job gives for queue c, whose first job would fit
    into these 4.
    """
    jobs = elastic("job", "a", workers=6, idle=4), elastic("rigid", "b", workers=2, least=2)
    waiting = [entry("head", "b", gpu=5), entry("small", "c", gpu=1)]
    scene = pool_scene(5, *jobs, queues=(*specs(a=1, b=1, c=1),), waiting=waiting, reserved="b")
    assert scene.sizes() == {}


# Several limits, several jobs


def test_all_limits_must_have_room_in_the_end() -> None:
    """The quota of b has no room because of b's own idle growth, and the pool has no room because of a's idle
    growth.
    """
    queues = A, with_gpus("b", 4)
    own, other = elastic("own", "b", workers=4, idle=2), elastic("other", "a", workers=4, idle=3)
    assert pool_scene(3, own, replace(other, idle=0), queues=queues).sizes() == {}
    assert pool_scene(2, own, other, queues=queues).sizes() == {"own": 2}
    queues = A, with_gpus("b", 5)
    assert pool_scene(3, own, other, queues=queues).sizes() == {"own": 2, "other": 3}


def test_workers_that_help_in_no_lacking_resource_stay() -> None:
    jobs = elastic("cpu", "a", idle=3, unit={"cpu": 1}), elastic("gpu", "a", idle=3, most=80)
    scene = replace(pool_scene(2, *jobs), pool={GPU: 4, "cpu": 4})
    assert scene.sizes() == {"gpu": 2}


def test_steps_are_whole() -> None:
    job = elastic("job", "a", workers=9, idle=6, step=3, least=3)
    assert pool_scene(2, job).sizes() == {"job": 6}


def test_jobs_behind_the_first_follow() -> None:
    waiting = [entry(f"w{number}", "b", START + number, gpu=2) for number in range(3)]
    assert pool_scene(0, elastic("job", "a", workers=8, idle=5), waiting=waiting).sizes() == {"job": 4}


def test_job_that_may_pass_gets_idle_growth_alone() -> None:
    waiting = [entry("large", "b", gpu=8), entry("small", "b", START + 1, gpu=2)]
    scene = pool_scene(0, elastic("job", "a", workers=8, idle=3), waiting=waiting)
    assert scene.sizes() == {"job": 6}
    strict = replace(B, strict=True)
    assert replace(scene, queues=(A, strict)).sizes() == {}
    assert replace(scene, jobs=[elastic("job", "a", workers=8, idle=1)]).sizes() == {}


# What is on its way


def test_same_job_makes_nobody_give_twice() -> None:
    jobs = elastic("job", "a", workers=8, idle=4), elastic("more", "a", workers=4, idle=3, most=80)
    scene = pool_scene(3, *jobs)
    asked = scene.sizes()
    on_the_way = replace(scene, jobs=[replace(jobs[0], leaving=3, leaving_for=digest(key("head")), busy="x"), jobs[1]])
    assert asked == {"job": 5}
    assert on_the_way.plan().resizes == ()
    assert on_the_way.plan().hasten == {"b": key("head")}
    assert on_the_way.plan().needed == {key("job")}


def test_job_that_gives_already_gives_more_of_its_idle_growth_alone() -> None:
    job = elastic("job", "a", workers=8, idle=4, leaving=2, leaving_for=digest(key("w0")), busy="Resizing", yields=True)
    waiting = [entry(f"w{number}", "b", START + number, gpu=2) for number in range(2)]
    scene = pool_scene(0, job, waiting=waiting)
    assert scene.sizes() == {"job": 4}
    assert replace(scene, waiting=[*waiting, entry("w2", "b", START + 2, gpu=1)]).sizes() == {"job": 4}
    assert replace(scene, jobs=[replace(job, busy="", yields=False)], reserved="b").sizes() == {"job": 4}
    assert replace(scene, jobs=[replace(job, leaving_for=None)]).sizes() == {}, "its owner lets the workers go"


def test_many_waiting_jobs_are_given_room_within_a_few_plans_while_the_first_workers_leave() -> None:
    """Each plan searches for 64 waiting jobs, and two jobs have all of the idle growth."""
    jobs = [elastic(name, "a", workers=101, most=101, idle=100) for name in ("one", "two")]
    waiting = [entry(f"w{number:03}", "b", START + number, gpu=1) for number in range(150)]
    scene, asked = pool_scene(0, *jobs, waiting=waiting), []
    for _ in range(4):
        resizes = scene.plan().resizes
        sizes = {resize.key.name: resize.workers for resize in resizes}
        to = {resize.key.name: digest(resize.for_key) for resize in resizes if resize.for_key is not None}
        leaving = [
            replace(job, leaving=job.workers - sizes[name], leaving_for=to[name], busy="Resizing", yields=True)
            if (name := job.key.name) in sizes
            else job
            for job in scene.jobs
        ]
        scene = replace(scene, jobs=leaving)
        asked.append(sum(job.leaving for job in scene.jobs))
    assert asked == [64, 128, 150, 150]
    assert scene.plan().needed == {key("one"), key("two")}


def test_workers_on_their_way_out_are_not_needed_once_the_job_is_gone() -> None:
    job = elastic("job", "a", workers=8, idle=4, leaving=3, leaving_for=digest(key("gone")), busy="x")
    assert pool_scene(3, job, waiting=[]).plan().needed == frozenset()
    assert pool_scene(3, job).plan().needed == {key("job")}


@pytest.mark.parametrize("change", [{"busy": "Restarting"}, {"leaving": 1, "busy": "Scaling"}])
def test_busy_jobs_are_left_alone(change: dict[str, object]) -> None:
    job = elastic("job", "a", workers=8, idle=4)
    assert pool_scene(3, replace(job, **change)).sizes() == {}  # type: ignore[arg-type]


def test_busy_job_that_yields_gives_its_idle_growth_alone() -> None:
    job = elastic("job", "a", workers=8, idle=3, least=1, autoscale=True, busy="Restarting", yields=True)
    assert pool_scene(3, job).sizes() == {"job": 5}
    assert pool_scene(4, job, reserved="b").sizes() == {}


def test_resting_job_gives_back() -> None:
    assert pool_scene(3, elastic("job", "a", workers=8, idle=4, resting_until=START + 99)).sizes() == {"job": 5}


def test_message_names_the_waiting_job() -> None:
    [resize] = pool_scene(3, elastic("job", "a", workers=8, idle=4)).plan().resizes
    assert (resize.reason, resize.for_key, resize.for_queue) == ("GiveBack", key("head"), "b")
    assert resize.message == "gives 3 workers back to team/head of queue b"


def test_message_names_no_job_of_another_namespace() -> None:
    theirs = [entry("head", "b", namespace="theirs", gpu=3)]
    [resize] = replace(pool_scene(3, elastic("job", "a", workers=8, idle=4)), waiting=theirs).plan().resizes
    assert resize.for_key == key("head", "theirs")
    assert resize.message == "gives 3 workers back to a job of another team"


def test_claim_that_is_served_keeps_no_other_claim_from_being_served() -> None:
    """The claims of b and c take 2 GPUs each. The loan of d needs the 4 GPUs that both claims leave, and 2 more."""
    members = [with_gpus(name, quota, cohort="all") for name, quota in {"a": 2, "b": 2, "c": 2, "d": 2}.items()]
    waiting = [entry("w-b", "b", gpu=2), entry("w-c", "c", gpu=2), entry("w-d", "d", gpu=3)]
    job = elastic("job", "a", workers=8, idle=7)
    assert Scene(queues=members, jobs=[job], waiting=waiting).sizes() == {"job": 1}
    assert Scene(queues=members, jobs=[replace(job, idle=6)], waiting=waiting).sizes() == {"job": 4}


def test_job_keeps_what_is_not_needed_because_another_gives_more() -> None:
    """The first waiting job takes 2 GPUs of a step of 4, the other waiting jobs take 1 each: the step of the small job
    is not needed.
    """
    jobs = elastic("small", "a", 2, 1, 2, idle=1), elastic("large", "a", 5, 1, 5, idle=4, unit={GPU: 2}, step=2)
    sizes = [2, 1, 1, 1, 1]
    waiting = [entry(f"w{number}", "b", START + number, gpu=gpus) for number, gpus in enumerate(sizes)]
    scene = Scene(queues=(A, B), pool={GPU: 12}, jobs=jobs, waiting=waiting)
    assert scene.sizes() == {"large": 1}


def test_jobs_to_which_nobody_can_give_take_no_search_from_others() -> None:
    full = [with_gpus(f"f{number:02}", 1, cohort="all") for number in range(100)]
    lender = with_gpus("lender", 0, cohort="all")
    waiting = [entry(f"w{number}", queue.name, gpu=1) for number, queue in enumerate(full)]
    scene = Scene(
        queues=[*full, lender, with_gpus("z", 4)],
        jobs=[elastic("job", "z", workers=4, idle=2)],
        rigid={"lender": 100},
        waiting=[*waiting, entry("head", "z", gpu=2)],
    )
    assert scene.sizes() == {"job": 2}


# Turns of queues


def test_queues_take_turns_so_that_each_is_looked_at() -> None:
    """The first jobs of 150 queues cannot be helped, and each costs a search. The last queue has one that can."""
    names = [*(f"q{number:03}" for number in range(150)), "z"]
    scene = Scene(
        queues=[with_gpus(name, 4) for name in names],
        jobs=[elastic(f"job-{name}", name, workers=4, least=3, idle=1) for name in names],
        waiting=[entry(f"head-{name}", name, gpu=1 if name == "z" else 3) for name in names],
    )
    picker, seen, turns, found = scene.picker(), frozenset[str](), [], []
    for _ in range(4):
        planned = resize_plan.plan(picker, scene.jobs, START, seen=seen)
        turns.append(len(planned.seen))
        found.append([resize.key for resize in planned.resizes])
        seen = planned.seen
    assert turns == [64, 128, 0, 64], "the third plan ends the turn"
    assert found == [[], [], [key("job-z")], []]
