"""Plots of benchmarks: the drawn lines, and the errors if no plot can be written."""

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from bench.benchmarks import fairness
from bench.cli import main
from bench.errors import BenchError
from bench.support import panels
from bench.support.panels import Panel

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.servers
def test_plot_writes_a_png_and_keeps_it_out_of_the_json(tmp_path: Path) -> None:
    file = tmp_path / "fairness.png"
    done = CliRunner().invoke(main, ["fairness", "--picks", "50", "--json", "--plot", str(file)])
    assert done.exit_code == 0, done.output
    assert file.read_bytes()[:8] == PNG
    assert panels.PANELS not in orjson.loads(done.output)


def test_distances_has_one_line_for_each_queue() -> None:
    lines = fairness.distances([("a", 2), ("b", 1), ("a", 1)], {"a": 1, "b": 1})
    assert lines == {"a": [(1, 1.0), (2, 0.5), (3, 1.0)], "b": [(1, -1.0), (2, -0.5), (3, -1.0)]}


def test_shares_returns_a_cumulative_distribution_with_few_points() -> None:
    assert panels.shares([3.0, 1.0, 2.0, 2.0]) == [
        (1.0, 0.0),
        (1.0, 25.0),
        (2.0, 50.0),
        (2.0, 75.0),
        (3.0, 100.0),
        (3.0, 100.0),
    ]
    assert panels.shares([]) == ()
    many = panels.shares(range(100_000))
    assert len(many) <= panels.MOST_POINTS + 2
    assert many[-1] == (99_999, 100.0)


def test_draw_names_a_file_that_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"--plot .*/nowhere/x.png: No such file or directory"):
        panels.draw([Panel("t", "x", "y", {"a": [(0, 0), (1, 1)]})], "test", tmp_path / "nowhere" / "x.png")


def test_draw_without_panels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="nothing to draw"):
        panels.draw([], "test", tmp_path / "x.png")
