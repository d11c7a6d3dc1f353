"""The caller's Python: the Python of an active environment, else the first Python on PATH."""

from pathlib import Path

from coordinator.runs import caller_python


def program(folder: Path, name: str = "python") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("")
    path.chmod(0o755)
    return str(folder)


def test_an_active_environment_comes_before_the_path(tmp_path: Path) -> None:
    system, conda, venv = (program(tmp_path / name / "bin") for name in ("system", "conda", "venv"))
    environ = {"PATH": f"/nonexistent:{system}"}
    assert caller_python.find_folder(environ) == system
    environ["CONDA_PREFIX"] = str(tmp_path / "conda")
    assert caller_python.find_folder(environ) == conda
    environ["VIRTUAL_ENV"] = str(tmp_path / "venv")
    assert caller_python.find_folder(environ) == venv


def test_an_environment_without_a_python_does_not_count(tmp_path: Path) -> None:
    system = program(tmp_path / "system", "python3")
    environ = {"PATH": system, "VIRTUAL_ENV": str(tmp_path / "removed"), "CONDA_PREFIX": ""}
    assert caller_python.find_folder(environ) == system


def test_without_a_usable_python_there_is_no_folder(tmp_path: Path) -> None:
    assert caller_python.find_folder({}) == ""
    assert caller_python.find_folder({"PATH": str(tmp_path)}) == ""
    program(tmp_path / "a:b" / "bin")
    assert caller_python.find_folder({"VIRTUAL_ENV": str(tmp_path / "a:b")}) == ""
