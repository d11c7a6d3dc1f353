"""What is wrong with the system, above every page, in the words of `torchq status`."""

from collections.abc import Iterator, Mapping

from coordinator.dashboard import moments
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.elements import Element
from coordinator.dashboard.readings import Reading
from coordinator.wording import system_health


def problems(asked: Asked) -> Iterator[Element]:
    """Yield what is wrong, a line for each failing part."""
    reading = asked.reading
    since = moments.stamp(reading.figures_at) if "coordinator" in reading.problems and reading.figures_at else ""
    for part, text in _troubles(reading).items():
        yield Element(f"problem-{part.replace(' ', '-')}", "problem", (part, text, since if part == "queues" else ""))


def _troubles(reading: Reading) -> Mapping[str, str]:
    silent = reading.problems.get("coordinator", "")
    # Where no coordinator answers, nobody says whether one leads.
    numbers = reading.status or {"redis": silent, "leader": "not known"}
    lease = {"apiServer": reading.problems.get("API server", "")}
    found: Mapping[str, str] = system_health.summarize(lease, numbers, {})["trouble"]
    return found if not silent or "queues" in found else {**found, "queues": silent}
