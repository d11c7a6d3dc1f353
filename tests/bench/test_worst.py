"""The objects that cost a reader most are objects of their kinds, and as large as they are said to be."""

import pytest

from bench import worst
from cluster import streams
from coordinator import views

SIZE = 300_000


@pytest.mark.parametrize(("name", "make"), list(worst.shapes()), ids=[name for name, _ in worst.shapes()])
def test_a_shape_is_read_and_has_its_size(name: str, make: worst.Make) -> None:
    body = worst.fitting(make, SIZE)
    text = worst.text({"type": "ADDED", "object": body})
    assert SIZE / 4 < len(text) < 2 * SIZE
    (event,) = streams.events([text, b"\n"], "watch")
    view = views.job_view if name.startswith("job_") else views.pod_view
    view(event.object)


def test_the_worst_is_the_largest() -> None:
    found = worst.run(worst.SHORT)
    assert found["worst_ms"] == max(value for name, value in found.items() if name != "worst_ms")
    assert len(found) == len(list(worst.shapes())) + 1
