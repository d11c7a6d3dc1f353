"""Curves beside a benchmark's figures, and their picture as PNG.

One rule: nothing is drawn that was not measured in the same run; the only module that knows the plotting library.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from bench.errors import BenchError

PANELS = "panels"
"""Where figures carry their curves: for pictures alone, neither printed nor in the JSON."""
MOST_POINTS = 2_000
"""Of a curve that stands for many more values."""

Line = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One system of axes."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Line]


def shares(values: Iterable[float]) -> Line:
    """How many percent of some values are at most so large: from none to all of them."""
    ordered = sorted(values)
    if not ordered:
        return ()
    step = max(1, len(ordered) // MOST_POINTS)
    numbers = [*range(0, len(ordered), step), len(ordered) - 1]
    return [(ordered[0], 0.0), *((ordered[each], 100 * (each + 1) / len(ordered)) for each in numbers)]


def draw(panels: Sequence[Panel], title: str, file: Path) -> None:
    """A picture of the panels, one above the other. BenchError if there is none or the file cannot be written."""
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
