"""`remote`: the calls that run here, the calls that are sent, and the calls that are refused before anything is
sent.
"""

import json
import multiprocessing
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import torchq
from tests.support.training.notebook import program
from tests.support.training.program import run, run_command
from torchq._errors import Invalid, Refused
from torchq._functions import call as calls
from torchq._functions.remote import RemoteFunction, RemoteOptions, remote
from torchq._run_parameters import RUN

ROOT = Path(__file__).parents[3]


@remote(nodes=2, queue="team-a", env={"LR": "1"})
def train(lr: float, steps: int = 3) -> float:
    """Train."""
    return lr * steps


@remote
def save(path: Any) -> None: ...


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, Any]]]:
    """Return the list of all later calls of `torchq.run`."""
    calls: list[tuple[list[str], dict[str, Any]]] = []
    monkeypatch.setattr(torchq, "run", lambda command, **options: calls.append((command, options)))
    monkeypatch.chdir(ROOT)
    return calls


def test_a_call_runs_here() -> None:
    assert train(2.0) == 6.0
    assert train(2.0, steps=1) == 2.0
    assert (train.__name__, train.__doc__, repr(train)) == ("train", "Train.", "<torchq.remote function train>")


def test_submit_sends_names_arguments_and_options(sent: Any) -> None:
    train.submit(3e-4, steps=5)
    [(command, options)] = sent
    assert command == ["python", "-m", "torchq._runner", "tests.torchq._functions.test_remote", "train"]
    call = calls.parse(options["env"].pop("TORCHQ_CALL"))
    assert options == {"nodes": 2, "queue": "team-a", "env": {"LR": "1"}}
    assert (call.arguments, call.keywords, call.source) == ([3e-4], {"steps": 5}, "")
    assert call.file == "tests/torchq/_functions/test_remote.py"
    assert "." in call.search_path


def test_with_options_changes_some_of_them(sent: Any) -> None:
    train.with_options(nodes=4, name="large").submit(1.0)
    train.submit(1.0)
    assert [(options["nodes"], options.get("name")) for _, options in sent] == [(4, "large"), (2, None)]


def test_the_options_are_the_parameters_of_run() -> None:
    assert set(RemoteOptions.__annotations__) == {each.name for each in RUN} - {"command", "roles"}


class Trainer:
    def fit(self) -> None: ...


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: remote(nodez=3)(train.function), "remote: there is no option nodez; there are name, queue, nodes"),
        (lambda: remote(Trainer), "remote: takes a function, not type"),
        (lambda: remote(train), "remote: takes a function, not RemoteFunction"),
        (lambda: remote(staticmethod(train.function)), "remote: takes a function, not staticmethod"),
        (lambda: remote(Trainer.fit), "Trainer.fit belongs to a class"),
    ],
)
def test_what_can_never_go_is_refused_where_it_is_decorated(make: Callable[[], Any], words: str) -> None:
    with pytest.raises((Invalid, Refused), match=words):
        make()


def test_a_method_is_refused_in_a_class_within_a_function() -> None:
    with pytest.raises(Refused, match="belongs to a class"):

        class Local:
            @remote
            def fit(self) -> None: ...


def nested() -> RemoteFunction[[], int]:
    @remote
    def function() -> int:
        return 7

    return function


@pytest.mark.parametrize(
    ("submit", "kind", "words"),
    [
        (lambda: remote(lambda: 1).submit(), Refused, "a lambda has no name"),
        (lambda: nested().submit(), Refused, "nested.<locals>.function is made within another function"),
        (lambda: save.submit(Path("x")), Invalid, r"argument 1: pathlib\.\w+ is not JSON: give str\(\) of it"),
        (lambda: save.submit(path=(1, 2)), Invalid, "argument path: tuple is not JSON: give a list"),
        (save.submit, TypeError, "missing a required argument: 'path'"),
        (lambda: train.submit(1.0, step=3), TypeError, "unexpected keyword argument 'step'"),
        (lambda: remote(json.dumps).submit(1), Refused, r"dumps is in .*: start in your project's folder"),
        (lambda: remote(train.function).with_options(folder="/").submit(1.0), None, ""),
        (lambda: remote(FIRST).submit(), Refused, "hidden of the module .* is something else by now"),
    ],
)
def test_what_cannot_go_is_refused_at_the_call(
    sent: Any, submit: Callable[[], Any], kind: type[Exception] | None, words: str
) -> None:
    if kind is None:
        submit()
        return
    with pytest.raises(kind, match=words):
        submit()
    assert sent == []


def hidden() -> None: ...


FIRST, hidden = hidden, train.function  # type: ignore[assignment]


def test_a_nested_function_runs_here() -> None:
    assert nested()() == 7


def test_a_function_is_pickled_by_name_for_the_users_own_processes() -> None:
    assert pickle.loads(pickle.dumps(train)) is train
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(train, [1.0, 2.0]) == [3.0, 6.0]


SCRIPT = """
import json, torchq
from torchq._functions.remote import remote

@remote(nodes=2)
def train(lr): return lr

def main():
    torchq.run = lambda command, **options: print(json.dumps([command, json.loads(options["env"]["TORCHQ_CALL"])]))
    train.submit(0.5)

"""


@pytest.mark.parametrize("command", [["sweep.py"], ["-m", "sweep"]])
@pytest.mark.servers
def test_a_function_of_a_script_goes_by_the_name_of_its_file(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "sweep.py").write_text(SCRIPT + 'if __name__ == "__main__":\n    main()\n')
    done = run_command([sys.executable, *command], folder=tmp_path)
    assert done.stderr == ""
    words, call = json.loads(done.stdout)
    assert words == ["python", "-m", "torchq._runner", "sweep", "train"]
    assert (call["file"], call["searchPath"]) == ("sweep.py", ["."])


@pytest.mark.parametrize("call", ["main()", "if True:\n    main()", "for _ in range(3): main()"])
@pytest.mark.servers
def test_a_script_that_would_submit_itself_again_is_refused(tmp_path: Path, call: str) -> None:
    (tmp_path / "sweep.py").write_text(f"{SCRIPT}{call}\n")
    done = run_command(["python", "sweep.py"], folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert 'submits a job again: put what submits under `if __name__ == "__main__":`' in done.stderr


@pytest.mark.servers
def test_a_function_that_was_typed_is_refused() -> None:
    done = run("@remote\ndef f(): ...\nf.submit()")
    assert "f is in no file: write it to a file of this folder" in done.stderr


CELLS = [
    "import json, torchq\nfrom torchq._functions.remote import remote",
    "import math\nLR = 0.5",
    "LR += 1\ndef scale(x): return math.floor(x * LR)",
    "@remote(nodes=2)\ndef train(x):\n    return scale(x)",
    "torchq.run = lambda command, env, **_: print(json.dumps([command, json.loads(env['TORCHQ_CALL'])]))",
    "train.submit(10)",
    "model = object()",
    "def scale(x): return model",
    "try:\n    train.submit(10)\nexcept torchq.Refused as error: print(error)",
]


@pytest.mark.servers
def test_a_function_of_a_notebook_goes_with_what_it_needs() -> None:
    done = run_command(["python", "-c", program(CELLS)])
    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    command, call = json.loads(first)
    assert command == ["python", "-m", "torchq._runner", "torchq_notebook", "train"]
    assert "LR = 1.5" in call["source"]
    assert "def scale(x): return math.floor(x * LR)" in call["source"]
    assert (call["file"], call["searchPath"]) == ("", [])
    assert second.startswith("train needs what the job does not have: model, which cell 7 makes (object). Give it as")
