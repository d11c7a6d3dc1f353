"""The settings of the processes of torchq in a stack, and the folder in which they start."""

import subprocess
from pathlib import Path

import pytest

from coordinator.local.stack_state import Files
from coordinator.local.torchq_processes import TorchqProcesses


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, {"TORCHQ_HISTORY_URL": "sqlite:///{data}/history.sqlite"}),
        ({"TORCHQ_HISTORY_URL": "postgresql://db/torchq"}, {"TORCHQ_HISTORY_URL": "postgresql://db/torchq"}),
        ({"TORCHQ_HISTORY_URL_FILE": "/run/url"}, {"TORCHQ_HISTORY_URL_FILE": "/run/url"}),
    ],
)
def test_recorder_writes_to_the_data_folder_unless_the_user_names_a_database(
    own: dict[str, str], expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHQ_KUBECONFIG", "/of/another/cluster")
    files = Files(tmp_path)
    recorder = TorchqProcesses(files, own, "unix://redis", "").recorder()
    found = recorder.environment or {}
    history = {name: value for name, value in found.items() if name.startswith("TORCHQ_HISTORY")}
    assert history == {name: value.format(data=tmp_path) for name, value in expected.items()}
    assert (found["TORCHQ_KUBECONFIG"], found["TORCHQ_HEALTH_PORT"]) == (str(files.layout.kubeconfig), "0")
    assert recorder.tells


@pytest.mark.servers
def test_file_of_the_current_folder_takes_the_place_of_no_module(tmp_path: Path) -> None:
    (tmp_path / "history.py").write_text("raise SystemExit('a script of the user ran')")
    recorder = TorchqProcesses(Files(tmp_path), {}, "unix://redis", "").recorder()
    said = subprocess.run([*recorder.arguments, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
