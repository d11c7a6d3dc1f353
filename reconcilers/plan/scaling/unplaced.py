"""The removal of workers that left their nodes (`reconcilers.plan.departures`) and could not be placed elsewhere.

One rule: pure. An elastic job gives such workers up once added workers would be given up, too, and down to its least
number: the number that its owner wants, if the policy gives none. It frees their room; the rest of its wish waits in
its queue again. Any other job goes on waiting for its pods.
"""

from dataclasses import replace
from datetime import timedelta

from reconcilers.plan import status
from reconcilers.plan.scaling import resize_events
from reconcilers.plan.scaling.resize import Resize, ScalingStep


def give_up(job: Resize) -> ScalingStep | None:
    """Name the workers as victims that do not run elsewhere in time, and others where the job may not have the number
    of workers that would be left."""
    spec, late = job.run.wanted.spec, [name for name, left in job.seconds_to_place.items() if left <= 0]
    policy, scope = spec.torch_elastic_policy, spec.worker_range
    if policy is None or not late or job.victims or job.is_joining or job.has_ended:
        return None
    unit = policy.replica_step if scope is None else scope.step
    spare = job.granted - spec.least_workers
    order = sorted(job.workers.choose(job.granted), key=lambda name: name not in late)
    count = sum(name in late for name in order)
    if spare <= 0 or not count:
        return None
    victims = tuple(order[: min(spare, count + (spare - count) % unit)])
    tries = job.scaling.tries + 1 if job.scaling is not None else 1
    pause = timedelta(seconds=status.pause(job.run.job, tries, job.settings.admission_backoff))
    since = job.scaling.since if job.scaling is not None else job.now
    change = job.change(from_workers=job.granted, since=since, victims=victims)
    change = change.model_copy(update={"tries": tries, "not_before": job.now + pause})
    again = job.wish > job.granted - len(victims)
    step = job.write(change, (resize_events.not_joined(victims, job.join_time, again=again),))
    left = {name: gone for name, gone in step.after.departed.items() if name not in victims}
    return replace(step, after=step.after.model_copy(update={"departed": left}))
