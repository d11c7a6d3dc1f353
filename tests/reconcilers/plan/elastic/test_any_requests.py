"""Scale requests at any time, with a worker that stops anywhere and an owner who edits the size. At the end, the job
has the workers that it requests, and is charged for these workers.
"""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from reconcilers.settings import ReconcileSettings
from tests.support.reconcilers import sizes
from tests.support.reconcilers.requested import Requested, requested

MOST = 6
counts = st.integers(1, 3)


class Asked(RuleBasedStateMachine):
    """A job with requests at any time, a worker that stops anywhere, and an owner who edits the size."""

    job: Requested

    @initialize(size=st.integers(2, 4))
    def begin(self, size: int) -> None:
        self.job = requested(size, policy={"numMaxReplicas": MOST})
        self.job.settings = ReconcileSettings(admission_timeout=0.0, restart_backoff=0.0)
        self.made = 0

    def ask(self, **change: Any) -> None:
        self.made += 1
        self.job.ask(f"r{self.made}", **change)

    @rule(count=counts)
    def add(self, count: int) -> None:
        self.ask(add=count)

    @rule(count=counts)
    def remove(self, count: int) -> None:
        self.ask(remove=count)

    @rule(index=st.integers(0, MOST - 1))
    def remove_one(self, index: int) -> None:
        self.ask(names=[f"digits-worker-{index}"])

    @rule(number=st.integers(0, 9))
    def delete(self, number: int) -> None:
        if self.job.asked:
            self.job.delete(sorted(self.job.asked)[number % len(self.job.asked)])

    @rule(size=st.integers(1, MOST))
    def edit(self, size: int) -> None:
        self.job.want(size)

    @rule(most=st.integers(1, 4))
    def work(self, most: int) -> None:
        self.job.reconcile(most)

    @rule(size=st.integers(1, MOST))
    def give(self, size: int) -> None:
        self.job.give(size)

    @rule(index=st.integers(0, MOST - 1))
    def run_one(self, index: int) -> None:
        self.job.run(index)

    @rule()
    def end(self) -> None:
        self.job.end()

    @rule()
    def lower(self) -> None:
        self.job.lower()

    @rule(seconds=st.sampled_from([10, 101]))
    def wait(self, seconds: int) -> None:
        self.job.pass_time(seconds)

    def teardown(self) -> None:
        if not hasattr(self, "job"):
            return
        job = self.job
        for _ in range(15):
            job.finish(101)
        assert job.asked == {}, "all requests are over, and so is their time to live"
        admission = job.known.admission
        assert admission is not None
        assert admission.workers == job.known.spec.worker_count == len(job.indexes())
        assert job.reservation == sizes.held(admission.workers, admission.grown or 0)
        assert job.known.status.scaling is None
        assert (job.known.status.restart_count, job.known.status.disruptions) == (0, 0)


Asked.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAsked = pytest.mark.proof(Asked.TestCase)
