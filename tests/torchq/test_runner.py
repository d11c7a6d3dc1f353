"""The runner as a job starts it: in a separate process, in the folder that was sent."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.training.program import marked, run_command
from torchq._functions.call import FunctionCall
from torchq._training.marked_lines import RESULT

pytestmark = pytest.mark.servers

Run = Callable[..., subprocess.CompletedProcess[str]]
FILE = "train.py"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs the function `train` of a source."""

    def run(source: str, *arguments: Any, rank: int = 0, call: FunctionCall | None = None) -> Any:
        (tmp_path / FILE).write_text(source)
        call = call or FunctionCall(arguments, {}, ["."], FILE)
        return start(tmp_path, call, [FILE[:-3], "train"], rank)

    return run


def start(folder: Path, call: FunctionCall, names: Sequence[str], rank: int = 0) -> subprocess.CompletedProcess[str]:
    variables = {
        "TORCHQ_CALL": call.as_text(),
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "TORCHQ_RESULT_FILE": str(folder / "result"),
    }
    return run_command(["python", "-m", "torchq._runner", *names], variables, folder)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return lr * 2", 1.0),
        ("return {'accuracy': lr}", {"accuracy": 0.5}),
        ("return {'value': 4}", {"value": 4}),
        ("return {}", {}),
        ("return [lr, None]", [0.5, None]),
        ("return []", []),
        ("return 4", 4),
        ("return 'four'", "four"),
        ("return ''", ""),
        ("return False", False),
        ("return lr, 2", [0.5, 2]),
        ("return {1: 'a', None: lr}", {"1": "a", "null": 0.5}),
        ("return {'loss': float('nan')}", {"loss": "NaN"}),
    ],
)
def test_what_rank_zero_returns_is_the_result(run: Run, tmp_path: Path, body: str, expected: object) -> None:
    done = run(f"def train(lr): {body}", 0.5)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "result").read_text()) == {"torchq-result": expected}
    assert [json.loads(line) for line in marked(done.stdout, RESULT)] == [expected]


def test_other_ranks_run_the_function_and_give_no_result(run: Run, tmp_path: Path) -> None:
    done = run("import os\ndef train():\n    print('rank', os.environ['RANK'])\n    return object()", rank=1)
    assert (done.returncode, done.stdout, done.stderr) == (0, "rank 1\n", "")
    assert not (tmp_path / "result").exists()


def test_a_function_that_returns_nothing_keeps_the_result_that_it_has_given(run: Run, tmp_path: Path) -> None:
    source = "from torchq._training.results import result\ndef train(): result(accuracy=0.5)"
    assert run(source).returncode == 0
    assert json.loads((tmp_path / "result").read_text()) == {"torchq-result": {"accuracy": 0.5}}


def test_a_failure_shows_the_code_of_the_user_alone(run: Run) -> None:
    done = run("def train(lr):\n    return divide(lr)\ndef divide(x):\n    return x / 0\n", 1, rank=3)
    assert (done.returncode, done.stdout) == (1, "")
    first, *lines, last = done.stderr.splitlines()
    assert (first, last) == ("Traceback (most recent call last):", "ZeroDivisionError: division by zero")
    assert [line.split(", ", 1)[1] for line in lines if "File" in line] == ["line 2, in train", "line 4, in divide"]


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("import gone_module\ndef train(): ...", 1, "ModuleNotFoundError: No module named 'gone_module'"),
        ("raise ValueError('at import')", 1, "ValueError: at import"),
        ("def train(:", 1, "SyntaxError"),
        ("x = 1", 1, "torchq: the module train has no function train when the job imports it"),
        ("def train(): raise SystemExit(3)", 3, ""),
        ("import sys\ndef train(): sys.exit('no data')", 1, "no data"),
        ("def train(): raise KeyboardInterrupt", 130, ""),
    ],
)
def test_every_failure_has_its_words_and_exit_code(run: Run, source: str, code: int, words: str) -> None:
    done = run(source)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert bool(done.stderr) is bool(words)
    assert "_runner.py" not in done.stderr
    assert "importlib" not in done.stderr


def test_a_module_that_was_left_out_is_named(tmp_path: Path) -> None:
    done = start(tmp_path, FunctionCall([], {}, ["."], "pkg/train.py"), ["pkg.train", "train"])
    assert done.returncode == 1
    assert done.stderr.startswith("torchq: the module pkg.train is not in the folder that was sent: .gitignore")
    assert "may leave out pkg/train.py" in done.stderr


def test_a_script_with_the_name_of_a_module_of_python_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "json.py").write_text("def train(): ...")
    done = start(tmp_path, FunctionCall([], {}, ["lib"], "lib/json.py"), ["json", "train"])
    assert done.returncode == 1
    assert "torchq: Python finds the module json in " in done.stderr
    assert "and not in lib/json.py: rename lib/json.py" in done.stderr


def test_a_module_that_submits_when_it_is_imported_submits_nothing(run: Run) -> None:
    source = "from torchq._functions.remote import remote\n@remote\ndef train(): ...\ntrain.submit()"
    done = run(source)
    assert done.returncode == 1
    assert "the job imports train, which submits a job again: put what submits under `if __name__" in done.stderr


def test_a_function_and_the_modules_beside_it_are_found_as_here(tmp_path: Path) -> None:
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    (tmp_path / "src" / "pkg" / "job.py").write_text("import beside, below\ndef train(): return beside.X + below.X")
    (tmp_path / "src" / "beside.py").write_text("X = 1")
    (tmp_path / "below.py").write_text("X = 2")
    done = start(tmp_path, FunctionCall([], {}, ["src", "."], "src/pkg/job.py"), ["pkg.job", "train"])
    assert (done.returncode, done.stderr) == (0, "")
    assert marked(done.stdout, RESULT) == ["3"]


def test_the_module_of_a_notebook_has_a_file_for_tracebacks_and_for_processes(tmp_path: Path) -> None:
    source = """
import multiprocessing
def square(x): return x * x
def train(x):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(square, [x])[0]
"""
    done = start(tmp_path, FunctionCall([3], source=source), ["torchq_notebook", "train"])
    assert (done.returncode, done.stderr) == (0, "")
    assert marked(done.stdout, RESULT) == ["9"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result"]
    done = start(
        tmp_path, FunctionCall(["a"], source="def train(x):\n    return x / 2\n"), ["torchq_notebook", "train"]
    )
    assert "    return x / 2\n" in done.stderr


@pytest.mark.parametrize("variables", [{}, {"TORCHQ_CALL": "[]"}])
def test_without_a_call_it_says_what_it_is_for(tmp_path: Path, variables: dict[str, str]) -> None:
    done = run_command(["python", "-m", "torchq._runner", "train", "train"], variables, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("torchq._runner runs a function that `submit` has sent")
