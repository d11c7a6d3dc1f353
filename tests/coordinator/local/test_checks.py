"""The starts that `torchq local up` refuses before it starts any process: one message names the option."""

import os
import shutil
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator.cli import main
from coordinator.errors import LocalError, SettingsError
from coordinator.local import option_checks
from embedded.node.resources import machine

pytestmark = pytest.mark.servers


def up(*arguments: str, **environ: str) -> tuple[int, str]:
    """Return the exit code and the message of a start that must be refused."""
    result = CliRunner().invoke(main.main, ["local", "up", *arguments], env=environ, prog_name="torchq")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code, "the cluster was started"
    return result.exit_code, result.stderr


@pytest.mark.parametrize("foreground", [(), ("--foreground",)])
@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--gpus", "abc", "must be a whole number from 0 to 1024, not abc"),
        ("--gpus", "-1", "must be a whole number"),
        ("--gpus", "1.5", "must be a whole number"),
        ("--gpus", "99999999999", "must be a whole number"),
        ("--gpus", "", "must be a whole number"),
        ("--memory", "lots", "'lots' is not a quantity"),
        ("--memory", "64GB", "is not a quantity"),
        ("--memory", "0", "must be at least 16Mi"),
        ("--memory", "64", "64 is 64 bytes"),
        ("--memory", "-1Gi", "must not be negative"),
        ("--cpus", "0", "must be more than 0"),
        ("--cpus", "abc", "'abc' is not a quantity"),
        ("--cpus", "-2", "must not be negative"),
        ("--cpus", "2000000", "at most 1000000"),
        ("--container-log-max-size", "much", "is not a quantity"),
        ("--workers", "0", "1<=x<=256"),
        ("--port", "65536", "0<=x<=65535"),
        ("--data", "", "the value is empty"),
        ("--data", "/etc/passwd", "is a file"),
    ],
)
def test_an_invalid_value_is_rejected_with_the_name_of_its_option(
    tmp_path: Path, option: str, value: str, words: str, foreground: tuple[str, ...]
) -> None:
    data = tmp_path / "data"
    arguments = ("--data", str(data)) if option != "--data" else ()
    code, said = up(*arguments, option, value, *foreground)
    assert code == 2
    assert option in said
    assert words in said
    assert not data.exists()


@pytest.mark.parametrize("foreground", [(), ("--foreground",)])
def test_an_unreachable_redis_is_rejected_without_printing_its_password(
    tmp_path: Path, foreground: tuple[str, ...]
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{nobody.getsockname()[1]}"
        url = f"redis://{place}/0"
        code, said = up("--data", str(tmp_path), "--redis", url, *foreground)
        assert (code, f"--redis: Redis at {url} does not answer" in said) == (1, True), said
        secret = f"redis://me:secret@{place}/0"
        code, said = up("--data", str(tmp_path), *foreground, TORCHQ_REDIS_URL=secret)
    assert (code, f"TORCHQ_REDIS_URL: Redis at {url} does not answer" in said) == (1, True), said
    assert "secret" not in said


def test_a_port_in_use_is_rejected(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = up("--data", str(tmp_path), "--port", port)
    assert (code, port in said, "--port" in said) == (1, True, True)


def test_without_a_home_folder_the_message_asks_for_the_data_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_uid: int) -> object:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", nobody)
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    code, said = up()
    assert (code, "--data" in said, "HOME" in said) == (1, True, True)


def test_a_usable_folder_becomes_private_and_stays_empty(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    option_checks.folder(folder)
    assert folder.stat().st_mode & 0o077 == 0
    assert list(folder.iterdir()) == []
    option_checks.folder(folder)


@pytest.mark.parametrize("name", ["x" * 300, "/".join(["y" * 100] * 12), "in-the-way/x", "\udcff", "loop/x"])
def test_an_impossible_folder_path_is_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / "in-the-way").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(LocalError, match=r"^--data .* cannot be used: "):
        option_checks.folder(tmp_path / name)


@pytest.mark.skipif(os.getuid() == 0, reason="an administrator may write everywhere")
def test_a_folder_without_write_permission_is_rejected(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(LocalError, match="Permission denied"):
        option_checks.folder(tmp_path / "data")


@pytest.mark.parametrize(
    ("owner", "name", "words"),
    [("fcntl", "flock", "no locks"), ("socket.socket", "bind", "no sockets"), ("os", "fsync", "No space left")],
)
def test_a_file_system_without_locks_sockets_or_space_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str, name: str, words: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device") if name == "fsync" else OSError(95, "Operation not supported")

    monkeypatch.setattr(f"{owner}.{name}", refuse)
    with pytest.raises(LocalError, match=words):
        option_checks.folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_rejected_for_a_new_cluster_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(LocalError, match="its disk is full: 1Mi are free"):
        option_checks.folder(tmp_path)
    (tmp_path / "objects.sqlite").write_bytes(b"")
    option_checks.folder(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"SQLite format 3\0" + bytes(44) + (99).to_bytes(4, "big") + bytes(36), "newer version"),
        (b"something else", "not a database"),
    ],
)
def test_an_unreadable_object_database_is_rejected(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "objects.sqlite").write_bytes(content)
    with pytest.raises(LocalError, match=words):
        option_checks.folder(tmp_path)


def test_an_object_database_of_this_version_or_an_empty_one_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "objects.sqlite").write_bytes(b"SQLite format 3\0" + bytes(44) + (1).to_bytes(4, "big") + bytes(36))
    option_checks.folder(tmp_path)
    (tmp_path / "objects.sqlite").write_bytes(b"")
    option_checks.folder(tmp_path)


def test_an_invalid_redis_url_is_rejected_without_printing_it() -> None:
    with pytest.raises(SettingsError, match=r"--redis: .*must begin with redis://") as refused:
        option_checks.redis("secret", "--redis")
    assert "secret" not in str(refused.value)


def test_limits_beyond_the_machine_yield_a_note_and_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory", lambda: 8 * 2**30)
    monkeypatch.setattr(machine, "gpus", lambda _: ("0", "1"))
    assert list(option_checks.beyond_machine("8Gi", "2")) == []
    assert list(option_checks.beyond_machine("", "")) == []
    memory, gpus = option_checks.beyond_machine("9Gi", "3")
    assert memory.startswith("--memory 9Gi is more than this machine has (8.0Gi)")
    assert gpus.startswith("--gpus 3 is more than this machine has (2)")
