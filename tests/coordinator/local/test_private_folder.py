"""The data folder becomes private to its user, whatever its modes were."""

import os
import stat
from pathlib import Path

import pytest

from coordinator.errors import LocalError
from coordinator.local import private_folder
from coordinator.local.stack_state import Files
from embedded.layout import Layout


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "data"


def cluster(data: Path, folders: int, files: int) -> Layout:
    """Create the folder of an earlier cluster with these modes."""
    layout = Layout(data)
    names = (layout.token, layout.kubeconfig, layout.key("ca"), layout.database, layout.redis / "redis.sock")
    for path in (*names, *Files(data).secrets, layout.logs("stack")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
        path.chmod(files)
        path.parent.chmod(folders)
    data.chmod(folders)
    return layout


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_new_folder_is_private_whatever_the_umask(data: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        assert private_folder.secure(data) == []
    finally:
        os.umask(before)
    assert mode(data) == 0o700


@pytest.mark.parametrize("folders", [0o777, 0o755, 0o750, 0o701])
def test_an_open_folder_of_a_cluster_is_closed_with_a_note(data: Path, folders: int) -> None:
    layout = cluster(data, folders, 0o600)
    [note] = private_folder.secure(data)
    assert str(data) in note
    assert "open to other users" in note
    assert {mode(path) for path in (data, layout.redis, layout.logs("stack").parent, layout.key("ca").parent)} == {
        0o700
    }
    assert layout.token.read_text() == "text", "the token is kept, since no other user could read it"
    assert private_folder.secure(data) == []


def test_a_token_that_others_could_read_is_deleted_for_a_new_one(data: Path) -> None:
    layout = cluster(data, 0o755, 0o644)
    _, made_again = private_folder.secure(data)
    assert "created again" in made_again
    assert not layout.token.exists()
    assert not layout.kubeconfig.exists()
    assert not layout.key("ca").exists()
    assert not any(secret.exists() for secret in Files(data).secrets)
    assert mode(layout.database) == mode(layout.redis / "redis.sock") == 0o600


def test_a_token_in_a_private_folder_is_kept(data: Path) -> None:
    layout = cluster(data, 0o755, 0o644)
    data.chmod(0o700)
    assert private_folder.secure(data) == []
    assert layout.token.exists()
    assert mode(layout.token) == 0o600
    assert mode(layout.redis) == 0o700


def test_an_open_folder_with_other_files_is_rejected_unchanged(data: Path) -> None:
    data.mkdir(parents=True)
    (data / "thesis.tex").touch()
    data.chmod(0o755)
    with pytest.raises(LocalError, match="choose a new folder") as raised:
        private_folder.secure(data)
    assert "--data" in str(raised.value)
    assert mode(data) == 0o755
    data.chmod(0o700)
    assert private_folder.secure(data) == []


def test_an_empty_open_folder_is_closed(data: Path) -> None:
    data.mkdir(parents=True)
    data.chmod(0o777)
    assert private_folder.secure(data) == []
    assert mode(data) == 0o700


def test_the_target_of_a_link_to_a_folder_is_closed(data: Path, tmp_path: Path) -> None:
    cluster(data, 0o755, 0o600)
    (tmp_path / "link").symlink_to(data)
    assert private_folder.secure(tmp_path / "link")
    assert mode(data) == 0o700


def test_links_in_the_folder_are_not_followed(data: Path, tmp_path: Path) -> None:
    cluster(data, 0o700, 0o600)
    elsewhere = tmp_path / "large-disk"
    elsewhere.mkdir(mode=0o755)
    (data / "pods").symlink_to(elsewhere)
    (data / "gone").symlink_to(tmp_path / "nowhere")
    assert private_folder.secure(data) == []
    assert mode(elsewhere) == 0o755


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", [".", "token", "tls/ca.key", "redis"])
def test_a_folder_or_file_of_another_user_is_rejected(data: Path, name: str) -> None:
    cluster(data, 0o755, 0o600)
    os.chown(data / name, 12345, -1)
    with pytest.raises(LocalError, match="belongs to another user"):
        private_folder.secure(data)


def test_a_file_instead_of_the_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(LocalError, match="--data"):
        private_folder.secure(tmp_path / "data")
