"""Keys and tokens of reports: only the key of the installation makes a token, and a token is for one job."""

import stat
from pathlib import Path

import pytest

from coordinator.access import key_files
from coordinator.errors import SettingsError
from coordinator.reports import tokens
from coordinator.reports.tokens import ReportKey

KEY = ReportKey(b"a key of the installation")


def test_a_token_tells_its_job_and_no_other_key_makes_it() -> None:
    token = KEY.token("uid-1")
    assert KEY.uid(token) == "uid-1"
    assert ReportKey(b"a key of somebody else...").uid(token) is None
    assert KEY.uid(token.replace("uid-1", "uid-2")) is None


@pytest.mark.parametrize("token", ["", ".", "uid-1", "uid-1.", "uid-1.0", "é.x", "\x00.\x00", "a" * 16_000, "a.b.c"])
def test_any_other_text_is_no_token(token: str) -> None:
    assert KEY.uid(token) is None


def test_a_key_is_not_shown() -> None:
    assert "installation" not in repr(KEY)
    assert "installation" not in KEY.token("uid-1")


def test_a_key_file_is_made_once_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "report.key"
    key_files.make(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    made = tokens.read(str(path))
    assert made is not None
    assert len(made.secret) == 64
    key_files.make(path)
    assert tokens.read(str(path)) == made
    assert [*tmp_path.iterdir()] == [path]


def test_without_a_file_there_is_no_key(tmp_path: Path) -> None:
    assert tokens.read("") is None
    assert tokens.read(str(tmp_path / "none")) is None


@pytest.mark.parametrize("text", ["", "short\n", " " * 100, "x" * 5000])
def test_a_file_without_a_usable_key_is_refused_by_name_and_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(SettingsError, match="report_key_file") as refused:
        tokens.read(str(path))
    assert str(path) in str(refused.value)
    assert "short" not in str(refused.value)


def test_a_folder_is_no_key_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="Is a directory"):
        tokens.read(str(tmp_path))
