"""Scale requests of a job with idle growth: the requests change the owner's number, and end although the job has more
workers.
"""

from tests.support.reconcilers.requested import Requested, requested


def grown(wish: int, size: int) -> Requested:
    """Return a job with idle growth, all of whose workers run."""
    job = requested(wish, policy={"numMinReplicas": 1})
    job.grow_idle(size)
    job.finish()
    assert (job.indexes(), job.known.status.scaling) == (list(range(size)), None)
    return job


def idle(job: Requested) -> int:
    assert job.known.admission is not None
    return job.known.admission.idle


def test_scale_out_over_idle_growth_succeeds_once_it_is_paid_for() -> None:
    job = grown(2, 5)
    job.ask("more", add=2)
    job.work()
    assert (job.known.spec.worker_count, job.phase("more")[0], job.indexes()) == (4, "Admitted", [0, 1, 2, 3, 4])
    job.pay(2)
    job.work()
    assert (job.phase("more")[0], idle(job), job.indexes()) == ("Succeeded", 1, [0, 1, 2, 3, 4])


def test_scale_out_beyond_idle_growth_adds_the_rest() -> None:
    job = grown(2, 3)
    job.ask("more", add=3)
    job.work()
    scaling = job.known.status.scaling
    assert scaling is not None
    assert (scaling.from_workers, scaling.to, scaling.request) == (3, 5, "ScaleOut/more")
    job.give(5)
    job.work()
    job.run()
    job.work()
    assert (job.phase("more")[0], job.indexes()) == ("Scaling", [0, 1, 2, 3, 4])
    job.pay(1)
    job.work()
    assert (job.phase("more")[0], idle(job)) == ("Succeeded", 0)


def test_scale_out_that_is_never_paid_for_leaves_idle_growth() -> None:
    job = grown(2, 5)
    job.ask("more", add=2, timeout=100)
    job.work()
    job.finish(100)
    assert (job.phase("more"), job.known.spec.worker_count) == (("Failed", "TimedOut"), 2)
    assert (job.indexes(), idle(job)) == ([0, 1, 2, 3, 4], 3)


def test_scale_in_takes_the_idle_growth_along() -> None:
    job = grown(3, 5)
    job.ask("less", names=["digits-worker-1"])
    job.finish()
    assert (job.phase("less")[0], job.indexes(), idle(job)) == ("Succeeded", [0, 2], 0)


def test_scale_in_within_what_was_raised_since_leaves_idle_growth() -> None:
    job = grown(2, 5)
    job.want(4)
    job.finish()
    job.ask("less", remove=1)
    job.finish()
    assert (job.phase("less")[0], job.known.spec.worker_count, job.indexes()) == ("Succeeded", 3, [0, 1, 2, 3, 4])
