"""Hostile files for `torchq submit`: the error has one line, the exit code is 1, and no traceback is printed and no
request is sent.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.cli import submission
from coordinator.cli.manifest_files import BadManifest
from kube import yamltext

JOB = "apiVersion: train.distributed.io/v1alpha1\nkind: TorchJob\nmetadata: {name: a}\nspec: {}\n"
LEVELS = list(zip("abcdefghi", "bcdefghij", strict=True))
BOMB = 'a: &a ["l", "l"]\n' + "".join(f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n" for old, new in LEVELS)
MERGES = "a: &a {x: 1}\n" + "".join(f"{new}: &{new}\n  <<: [{', '.join(['*' + old] * 9)}]\n" for old, new in LEVELS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(BOMB, "aliases repeat more than 1,000,000 values", id="a billion laughs"),
        pytest.param(MERGES, "aliases repeat more than 1,000,000 values", id="a billion merges"),
        pytest.param("a: &a [*a]", "contains it", id="a cycle"),
        pytest.param("a: &a {b: {c: *a}}", "contains it", id="a wider cycle"),
        pytest.param("a: " + "[" * 100_000, "must not be nested deeper than 200 levels", id="100,000 lists"),
        pytest.param("{a: " * 100_000, "must not be nested deeper than 200 levels", id="100,000 maps"),
        pytest.param("- " * 5000, "must not be nested deeper than 200 levels", id="5,000 dashes"),
        pytest.param("a: 1\na: 2", "duplicate key 'a'", id="a duplicate key"),
        pytest.param("a: .nan", "finite", id="NaN"),
        pytest.param("a: -.inf", "finite", id="infinity"),
        pytest.param("a: !!python/object/apply:os.system [x]", "not YAML", id="a Python call"),
        pytest.param("? [a, b]\n: c", "not YAML", id="a list as a key"),
        pytest.param("a: *nobody", "not YAML", id="an unknown alias"),
        pytest.param("a: " + "9" * 5000, "5000 digits", id="a number of 5,000 digits"),
        pytest.param("a: \x01", "not YAML", id="a control character"),
        pytest.param('a: "\\ud800"', "not YAML", id="half a surrogate"),
        pytest.param(JOB + "---\nkind: [", "not YAML", id="a broken second document"),
        pytest.param(JOB + "---\nkind: Pod", "document 2", id="a second document of another kind"),
        pytest.param(JOB.replace("spec: {}", "spec: {a: 2026-01-01, on: 1}"), "quotes", id="keys that are not strings"),
    ],
)
def test_hostile_file_is_refused_with_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(text)
    with pytest.raises(BadManifest) as caught:
        submission.read([str(path)], "default", "/")
    message = str(caught.value)
    assert message.startswith(str(path))
    assert words in message
    assert len(message.splitlines()) == 1
    assert len(message) < 1000


def test_ordinary_aliases_are_read() -> None:
    text = "base: &base {x: 1, y: 2}\na:\n  <<: *base\n  y: 3\nb: *base\n"
    assert list(yamltext.documents(text)) == [{"base": {"x": 1, "y": 2}, "a": {"x": 1, "y": 3}, "b": {"x": 1, "y": 2}}]


@settings(deadline=None)
@given(st.text(st.sampled_from("ab:-[]{}&*!|>'\"%@#,? \n\t0.~<"), max_size=40) | st.text(max_size=20))
def test_any_text_gives_documents_or_an_error(text: str) -> None:
    try:
        found = list(yamltext.documents(text))
    except (yaml.YAMLError, ValueError):
        return
    assert isinstance(found, list)


def test_folder_or_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadManifest, match="Is a directory"):
        submission.read([str(tmp_path)], "default", "/")

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")  # raised here, since root may read each file

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(BadManifest, match="Permission denied"):
        submission.read(["secret.yaml"], "default", "/")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x7fELF\x02\x01\x01" + bytes(100), bytes(1000)])
def test_binary_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "binary"
    path.write_bytes(content)
    with pytest.raises(BadManifest, match="binary: not "):
        submission.read([str(path)], "default", "/")


def test_too_large_file_is_refused_before_its_end(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    with pytest.raises(BadManifest, match="larger than 32 MiB"):
        submission.read([str(path)], "default", "/")
    with pytest.raises(BadManifest, match="larger than 32 MiB"):
        submission.read(["/dev/zero"], "default", "/")


def torchq(*arguments: str, cwd: Path, closed: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command without a reachable cluster, with some of its streams closed."""
    command = f'exec "{sys.executable}" -m coordinator.cli.main "$@" {closed}'
    home = Path(__file__).parents[2]
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PYTHONPATH": str(home)}
    return subprocess.run(
        ["sh", "-c", command, "sh", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "closed", "words"),
    [
        (("submit", "-"), "<&-", "standard input is closed"),
        (("submit", "good.yaml", "broken.yaml"), "", "broken.yaml, document 2"),
    ],
    ids=["closed", "a broken second document"],
)
def test_command_prints_one_line_and_exits_with_code_1(
    tmp_path: Path, arguments: tuple[str, ...], closed: str, words: str
) -> None:
    (tmp_path / "good.yaml").write_text(JOB)
    (tmp_path / "broken.yaml").write_text(JOB + "---\nkind: Pod\n")
    (tmp_path / "kubeconfig").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n"
    )
    said = torchq("--kubeconfig", "kubeconfig", *arguments, cwd=tmp_path, closed=closed)
    assert said.returncode == 1, said
    assert words in said.stderr
    assert said.stderr.startswith("Error: ")
    assert len(said.stderr.splitlines()) == 1
    assert said.stdout == ""


def test_deleted_current_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(BadManifest, match="current folder no longer exists"):
        submission.folder()


def test_current_folder_with_an_undecodable_name_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(odd)
    monkeypatch.chdir(os.fsdecode(odd))
    with pytest.raises(BadManifest, match="UTF-8"):
        submission.folder()
