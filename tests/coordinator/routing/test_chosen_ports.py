"""The owner of a port that several jobs chose."""

import pytest

from coordinator.routing import chosen_ports
from coordinator.routing.chosen_ports import PortClaim
from crds.keys import JobKey
from crds.torchjob.demand import HostPort

A, B, C = (JobKey("team", name, f"uid-{name}") for name in "abc")


def claim(key: JobKey, *numbers: int, holds: bool = False, can_go: bool = True, age: float = 0.0) -> PortClaim:
    return PortClaim(key, frozenset(map(HostPort, numbers)), holds, can_go, (age, ""))


@pytest.mark.parametrize(
    ("claims", "before", "expected"),
    [
        ([claim(A, 1, age=2), claim(B, 1, age=1)], {}, {1: B}),
        ([claim(A, 1, age=2), claim(B, 1, age=1)], {1: A}, {1: A}),
        ([claim(A, 1, age=2, holds=True), claim(B, 1, age=1)], {1: B}, {1: A}),
        ([claim(A, 1, can_go=False), claim(B, 1, age=9)], {1: A}, {1: B}),
        ([claim(A, 1, can_go=False), claim(B, 2)], {}, {1: A, 2: B}),
        ([claim(A, 1), claim(B, 1, 2, age=1), claim(C, 2, age=2)], {}, {1: A, 2: C}),
        ([claim(A, 1, 2, holds=True), claim(B, 2, 3, holds=True, age=1), claim(C, 3, age=2)], {}, {1: A, 2: A, 3: B}),
        ([], {1: A}, {}),
    ],
)
def test_a_port_belongs_to_the_job_that_may_use_it_now(
    claims: list[PortClaim], before: dict[int, JobKey], expected: dict[int, JobKey]
) -> None:
    found = chosen_ports.owners(claims, {HostPort(number): key for number, key in before.items()})
    assert {port.port: key for port, key in found.items()} == expected
    assert chosen_ports.owners(claims[::-1], found) == found


def test_ports_of_different_protocols_or_addresses_belong_to_different_jobs() -> None:
    chosen = [HostPort(1), HostPort(1, "UDP"), HostPort(2, "TCP", "127.0.0.1"), HostPort(2, "TCP", "10.0.0.1")]
    keys = [JobKey("team", str(number), str(number)) for number in range(len(chosen))]
    claims = [PortClaim(key, frozenset({port}), holds=False) for key, port in zip(keys, chosen, strict=True)]
    assert chosen_ports.owners(claims, {}) == dict(zip(chosen, keys, strict=True))
    assert chosen_ports.taken_by(HostPort(2), keys[0], {HostPort(2, "TCP", "10.0.0.1"): keys[3]}) == keys[3]
