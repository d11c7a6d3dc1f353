"""The package works alone: with only the standard library, on an old Python, and with types that a strict checker
accepts.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "torchq").rglob("*.py"))
OLDEST = (3, 9)
SCRIPT = """
import torchq
import torchq.aio


def names(jobs: list[torchq.Job]) -> list[str]:
    return [job.name for job in jobs]


job = torchq.run(["python", "train.py"], nodes=4, gpus=1, queue="team-a", env={"A": "1"})
job = torchq.run(roles={"Data": torchq.Role(["python", "data.py"]), "Worker": torchq.Role(["w"], after="Data")})
phase: str = job.phase
place: "int | None" = job.position()
outcome: str = job.wait(timeout=3600).outcome
lines: list[str] = [line.text for line in job.logs(follow=True)]
first: list[torchq.Ending] = torchq.wait([job, "default/train/1"], first=True)
names([*torchq.as_completed([job]), torchq.job("x"), *torchq.jobs(queue="team-a")])


async def main() -> None:
    other = await torchq.aio.run(["python", "train.py"])
    phase: str = await other.phase
    async for line in other.logs():
        print(line.text, phase)
    result = await other.result(timeout=3)
    print(result)
"""
WRONG = 'import torchq\njob = torchq.run(["x"], nodes="four")\nprint(job.fase)\n'


def imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_imports_the_standard_library_only_and_is_read_by_the_oldest_python(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=OLDEST)
    assert imported(tree) <= {*sys.stdlib_module_names, "torchq"}
    has_code = len(tree.body) > 1
    is_postponed = "from __future__ import annotations" in path.read_text()
    assert is_postponed or not has_code, "annotations are newer than the oldest Python"


def test_the_oldest_python_imports_it() -> None:
    python = next(filter(works, [shutil.which("python3.9"), *map(str, old_pythons())]), None)
    if python is None:
        pytest.skip("no Python 3.9 is here")
    code = "import torchq, torchq.aio; print(torchq.__version__)"
    done = subprocess.run(
        [python, "-W", "error", "-c", code],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def old_pythons() -> list[Path]:
    """Return the Pythons 3.9 that pyenv has installed."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return sorted(root.glob("versions/3.9.*/bin/python"))


def works(python: str | None) -> bool:
    return python is not None and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def checked(folder: Path, text: str) -> tuple[int, str]:
    """Return the verdict of the strict type checker on a user's script."""
    (folder / "script.py").write_text(text)
    (folder / "mypy.ini").write_text("[mypy]\nstrict = true\npython_version = 3.11\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "script.py"],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_strict_type_checker_accepts_a_users_script(tmp_path: Path) -> None:
    code, said = checked(tmp_path, SCRIPT)
    assert code == 0, said


def test_a_strict_type_checker_finds_a_users_mistakes(tmp_path: Path) -> None:
    code, said = checked(tmp_path, WRONG)
    assert code == 1
    assert 'incompatible type "str"' in said
    assert 'has no attribute "fase"' in said
