"""The Lease of the recorder, and what workers read in it."""

import pytest

from coordinator.recorder.recorder_lease import LEASE_SECONDS, RecorderLease
from coordinator.worker.recording import RecordingReader
from crds.api_resources import LEASES
from kube import errors
from kube.api import Cluster, Manifest
from reconcilers.plan.ending import RECORDING_SECONDS
from reconcilers.values import Recording
from tests.support.clock import START, Clock
from tests.support.coordinator.recording import RecordedCluster

SYSTEM = "kube-system"


@pytest.fixture
def recorded() -> RecordedCluster:
    return RecordedCluster()


def competitor(recorded: RecordedCluster, name: str) -> RecorderLease:
    return RecorderLease(api(recorded), name, SYSTEM, {"where": name}, recorded.clock)


def api(recorded: RecordedCluster) -> Cluster:
    found: Cluster = recorded.client  # type: ignore[assignment]
    return found


def lease(recorded: RecordedCluster) -> Manifest:
    return recorded.client.get(LEASES, "torchq-recorder", SYSTEM)


def test_lease_belongs_to_the_first_until_it_is_silent_for_too_long(recorded: RecordedCluster) -> None:
    first, second = competitor(recorded, "a"), competitor(recorded, "b")
    assert first.is_free()
    assert first.renew(7, START)
    assert not second.is_free()
    recorded.clock.step(LEASE_SECONDS - 1)
    assert first.is_free()
    assert first.renew(8, START + 10)
    assert not second.is_free()
    recorded.clock.step(LEASE_SECONDS)
    assert second.is_free()
    assert second.renew(9, START + 40)
    assert not first.renew(8, START + 40), "the first has not seen that it lost the Lease"
    assert not first.is_free()
    assert lease(recorded)["spec"]["holderIdentity"] == "b"
    assert lease(recorded)["spec"]["leaseTransitions"] == 2
    assert lease(recorded)["metadata"]["annotations"]["where"] == "b"


def test_lease_that_is_handed_back_is_free_at_once_and_still_says_how_far(recorded: RecordedCluster) -> None:
    first, second = competitor(recorded, "a"), competitor(recorded, "b")
    assert first.is_free()
    assert first.renew(7, START)
    second.release()
    assert lease(recorded)["spec"]["holderIdentity"] == "a"
    first.release()
    assert second.is_free()
    assert RecordingReader(api(recorded), SYSTEM, float, recorded.clock)() == Recording(7, START)


def test_one_of_two_that_come_at_once_gets_the_lease(recorded: RecordedCluster) -> None:
    first, second = competitor(recorded, "a"), competitor(recorded, "b")
    assert first.is_free()
    assert second.is_free()
    assert [first.renew(7, START), second.renew(7, START)] == [True, False]


class TestReader:
    def test_without_a_lease_or_the_right_to_read_it_nothing_is_known(
        self, recorded: RecordedCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = Clock()
        assert RecordingReader(api(recorded), SYSTEM, float, clock)() is None

        class Refusing:
            def get(self, *_: object) -> Manifest:
                raise errors.Forbidden("leases is forbidden")

        reader = RecordingReader(Refusing(), SYSTEM, float, clock)  # type: ignore[arg-type]
        for _ in range(3):
            assert reader() is None
            clock.step(RECORDING_SECONDS)
        assert caplog.messages == ["jobs are deleted without a look at the history: leases is forbidden"]

    def test_lease_that_no_recorder_has_renewed_says_nothing(self, recorded: RecordedCluster) -> None:
        competitor(recorded, "a").is_free()
        assert RecordingReader(api(recorded), SYSTEM, float, recorded.clock)() is None

    def test_lease_is_read_again_after_a_while(self, recorded: RecordedCluster) -> None:
        first, clock = competitor(recorded, "a"), Clock()
        reader = RecordingReader(api(recorded), SYSTEM, lambda: 100.0, clock)
        for version in (7, 8):
            assert first.is_free()
            assert first.renew(version, START)
            if version == 8:
                assert reader() == Recording(7, START + 100), "the answer of before is kept"
                clock.step(RECORDING_SECONDS)
            assert reader() == Recording(version, START + 100), "the time is by the clock of the worker"
