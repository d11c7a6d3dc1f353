"""Objects that are the slowest to decode: each one is valid for its kind and has the requested size."""

import pytest

from bench.benchmarks import worst
from coordinator.cache import views
from kube import streams
from reconcilers.views import pod_view

SIZE = 300_000


SHAPES = {
    **{f"job_{name}": make for name, make in worst.JOBS.items()},
    **{f"pod_{name}": make for name, make in worst.PODS.items()},
}


@pytest.mark.parametrize("name", SHAPES)
def test_each_worst_case_object_can_be_decoded_and_has_its_size(name: str) -> None:
    body = worst.fitting(SHAPES[name], SIZE)
    text = worst.text({"type": "ADDED", "object": body})
    assert SIZE / 4 < len(text) < 2 * SIZE
    (event,) = streams.events([text, b"\n"], "watch")
    if name.startswith("job_"):
        views.job_view(event.object)
    else:
        assert views.pod_view(event.object).name == pod_view.trim(event.object).name


def test_worst_ms_is_the_maximum_of_all_times() -> None:
    found = worst.run(worst.SHORT)
    assert found["worst_ms"] == max(value for name, value in found.items() if name != "worst_ms")
    assert len(found) == len(worst.JOBS) + 2 * len(worst.PODS) + 1
