"""The curves of a benchmark's figures, and their picture as PNG.

One rule: a picture shows only values of the same run. No other module uses the plotting library.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from bench.errors import BenchError

PANELS = "panels"
"""The key of the curves in the figures. They are neither printed nor in the JSON."""
MOST_POINTS = 2_000
"""The largest number of points of a curve."""

Line = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One system of axes with its curves."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Line]


def shares(values: Iterable[float]) -> Line:
    """Return the cumulative distribution of some values: for each value, the percentage that is not larger."""
    ordered = sorted(values)
    if not ordered:
        return ()
    step = max(1, len(ordered) // MOST_POINTS)
    numbers = [*range(0, len(ordered), step), len(ordered) - 1]
    return [(ordered[0], 0.0), *((ordered[number], 100 * (number + 1) / len(ordered)) for number in numbers)]


def draw(panels: Sequence[Panel], title: str, file: Path) -> None:
    """Draw the panels one above the other. Raises BenchError if there is none or the file cannot be written."""
    if not panels:
        raise BenchError(f"{title}: this run has nothing to draw")
    figure = Figure(figsize=(9.0, 0.6 + 3.6 * len(panels)), layout="constrained")
    for panel, axes in zip(panels, figure.subplots(len(panels), squeeze=False)[:, 0], strict=True):
        for name, line in panel.lines.items():
            axes.plot(*zip(*line, strict=True), label=name, linewidth=1.2)
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        axes.grid(visible=True, alpha=0.3)
        if len(panel.lines) > 1:
            axes.legend(fontsize="small")
    figure.suptitle(title)
    try:
        figure.savefig(file, format="png", dpi=110)
    except OSError as error:
        raise BenchError(f"--plot {file}: {error.strerror or error}") from error
