"""Packing of real folders: with and without git, and every kind of entry that cannot be packed."""

import io
import os
import shutil
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.code import folder_listing, pack, reading
from coordinator.code.errors import CodeTooLarge, FolderRefused
from coordinator.code.pack import PackedCode

pytestmark = pytest.mark.servers

LIMIT = 4 << 20


def write(folder: Path, **files: str) -> None:
    for name, content in files.items():
        put(folder, name, content)


def put(folder: Path, name: str, content: str | bytes = "") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def plain(folder: Path) -> None:
    assert folder.is_dir()


def repository(folder: Path) -> None:
    git(folder, "init", "-q")


@pytest.fixture(params=[plain, repository], ids=["plain", "git"])
def begin(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Return a function that either leaves a folder plain or makes it a git repository."""
    if request.param is repository and shutil.which("git") is None:
        pytest.skip("git is not installed")
    found: Callable[[Path], None] = request.param
    return found


def names(packed: PackedCode) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed.archive.content), mode="r:gz") as tar:
        return [name for name in tar.getnames() if not name.startswith(".torchq/")]


def packed(folder: Path, *exclude: str) -> PackedCode:
    return pack.pack(folder, exclude, limit=LIMIT)


def test_a_folder_is_packed_as_git_would_take_it(tmp_path: Path, begin: Callable[[Path], None]) -> None:
    begin(tmp_path)
    for name in ("train.py", "lib/a.py", "lib/a.pyc", "lib/__pycache__/x", "data/big", "lib/out.log", "keep.log"):
        put(tmp_path, name)
    put(tmp_path, ".gitignore", "data/\n*.log\n!keep.log\n")
    put(tmp_path, "lib/.gitignore", "tmp*\n")
    put(tmp_path, "lib/tmp1")
    put(tmp_path, "lib/.git/config")
    put(tmp_path, "env/pyvenv.cfg")
    put(tmp_path, "env/bin/python")
    put(tmp_path, ".env", "TOKEN=1")
    put(tmp_path, "deploy.txt", "-----BEGIN PRIVATE KEY-----\n")
    shutil.rmtree(tmp_path / "lib" / ".git")
    result = packed(tmp_path)
    assert names(result) == [".gitignore", "keep.log", "lib/.gitignore", "lib/a.py", "train.py"]
    assert result.files == 5
    assert [str(each) for each in result.left_out] == [
        "deploy.txt looks like a secret",
        ".env looks like a secret",
        "data/ by .gitignore",
        "lib/out.log by .gitignore",
        "lib/tmp1 by .gitignore",
    ]


def test_both_ways_to_list_a_folder_give_the_same_archive(tmp_path: Path) -> None:
    for name in ("train.py", "ü/b.py", "data/x/y", "data/z"):
        put(tmp_path, name)
    put(tmp_path, ".gitignore", "data/x/\n")
    walked = packed(tmp_path)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".gitignore", "train.py")
    assert packed(tmp_path) == walked


def test_git_takes_tracked_files_although_they_are_ignored_and_passes_over_removed_ones(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    put(tmp_path, ".gitignore", "*.bin")
    put(tmp_path, "small.bin")
    gone = put(tmp_path, "gone.py")
    git(tmp_path, "add", "-f", ".")
    gone.unlink()
    put(tmp_path, "other.bin")
    assert names(packed(tmp_path)) == [".gitignore", "small.bin"]


def test_a_subfolder_of_a_repository_is_packed_alone(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    put(tmp_path, ".gitignore", "*.bin")
    put(tmp_path, "outside.py")
    put(tmp_path, "project/train.py")
    put(tmp_path, "project/x.bin")
    assert names(packed(tmp_path / "project")) == ["train.py"]


def test_a_folder_that_an_outer_repository_ignores_is_packed(tmp_path: Path) -> None:
    """A repository of a home folder often ignores all of its files."""
    git(tmp_path, "init", "-q")
    put(tmp_path, ".gitignore", "*")
    put(tmp_path, "project/train.py")
    assert names(packed(tmp_path / "project")) == ["train.py"]


def test_submodules_and_repositories_in_a_folder_are_packed_by_their_own_rules(tmp_path: Path) -> None:
    library = tmp_path / "library"
    put(library, "lib.py")
    put(library, ".gitignore", "*.out")
    git(library, "init", "-q")
    git(library, "add", ".")
    git(library, "commit", "-q", "-m", "a")
    project = tmp_path / "project"
    put(project, "train.py")
    git(project, "init", "-q")
    git(project, "submodule", "add", str(library), "sub")
    shutil.copytree(library, project / "copy")
    put(project, "sub/x.out")
    put(project, "copy/y.out")
    result = packed(project)
    inner = [f"{name}/{file}" for name in ("copy", "sub") for file in (".gitignore", "lib.py")]
    assert names(result) == [".gitmodules", *inner, "train.py"]


def test_patterns_of_a_file_and_of_the_caller_leave_out_and_take_back(
    tmp_path: Path, begin: Callable[[Path], None]
) -> None:
    begin(tmp_path)
    for name in ("train.py", "runs/1", "gen/a_pb2.py", "gen/junk", "b.ckpt", ".env"):
        put(tmp_path, name, "x")
    put(tmp_path, ".gitignore", "gen/\n")
    put(tmp_path, "deploy.txt", "-----BEGIN PRIVATE KEY-----\n")
    put(tmp_path, ".torchqignore", "runs/\n!gen/*_pb2.py\n# a comment\n\n!.env\n!deploy.txt\n")
    result = packed(tmp_path, "*.ckpt")
    assert names(result) == [".env", ".gitignore", ".torchqignore", "deploy.txt", "gen/a_pb2.py", "train.py"]
    assert result.secrets == (".env", "deploy.txt")  # packed, with a word
    assert [str(each) for each in result.left_out] == [
        "b.ckpt by exclude",
        "gen/junk by .gitignore",
        "runs/ by .torchqignore",
    ]


def test_the_digest_follows_content_and_execution_and_nothing_else(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        put(folder, "a.py", "1")
        put(folder, "b/c.py", "2")
    os.utime(second / "a.py", (1, 1))
    (second / "a.py").chmod(0o600)
    (second / "empty").mkdir()
    assert packed(first).archive.digest == packed(second).archive.digest
    (second / "a.py").chmod(0o700)
    assert packed(first).archive.digest != packed(second).archive.digest
    (second / "a.py").chmod(0o600)
    put(second, "b/c.py", "3")
    assert packed(first).archive.digest != packed(second).archive.digest


def test_links_inside_the_folder_are_packed_as_relative_links(tmp_path: Path, begin: Callable[[Path], None]) -> None:
    begin(tmp_path)
    put(tmp_path, "lib/a.py", "1")
    (tmp_path / "lib" / "b.py").symlink_to("a.py")
    (tmp_path / "c").symlink_to(tmp_path / "lib")
    (tmp_path / "nowhere").symlink_to("missing")
    with tarfile.open(fileobj=io.BytesIO(packed(tmp_path).archive.content), mode="r:gz") as tar:
        links = {member.name: member.linkname for member in tar if member.issym()}
    assert links == {"lib/b.py": "a.py", "c": "lib", "nowhere": "missing"}


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside", "lib/../../outside", "chain"])
def test_a_link_out_of_the_folder_is_refused_by_name(
    tmp_path: Path, begin: Callable[[Path], None], target: str
) -> None:
    project = tmp_path / "project"
    put(project, "train.py")
    put(project, "lib/a.py")
    put(tmp_path, "outside")
    begin(project)
    (project / "chain").symlink_to("../outside")
    (project / "data").symlink_to(target)
    with pytest.raises(FolderRefused, match="chain is a link out of the folder, to"):
        packed(project)
    put(project, ".torchqignore", "chain")
    with pytest.raises(FolderRefused, match=r"data is a link out of the folder, to .*torchqignore"):
        packed(project)
    put(project, ".torchqignore", "chain\ndata")
    assert "train.py" in names(packed(project))


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(("make", "kind"), [(os.mkfifo, "a fifo"), (make_socket, "a socket")])
def test_a_special_file_is_refused_by_name(
    tmp_path: Path, begin: Callable[[Path], None], make: Callable[[Path], None], kind: str
) -> None:
    put(tmp_path, "lib/train.py")
    begin(tmp_path)
    make(tmp_path / "lib" / "odd")
    with pytest.raises(FolderRefused, match=f"lib/odd is {kind}"):
        packed(tmp_path)
    assert names(packed(tmp_path, "odd")) == ["lib/train.py"]


def read_often(folder: Path, path: str) -> None:
    for _ in range(10_000):
        reading.read(folder, path)


def test_a_file_that_changes_while_it_is_read_is_refused_by_name(tmp_path: Path) -> None:
    path = put(tmp_path, "train.log", "x" * 1_000_000)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            os.utime(path, ns=(time.time_ns(), time.time_ns()))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with pytest.raises(FolderRefused, match=r"train\.log changed while the folder was packed"):
            read_often(tmp_path, "train.log")
    finally:
        stop.set()
        thread.join()
    path.unlink()
    with pytest.raises(FolderRefused, match=r"train\.log was removed while the folder was packed"):
        reading.read(tmp_path, "train.log")


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path, begin: Callable[[Path], None]) -> None:
    put(tmp_path, "train.py")
    begin(tmp_path)
    (tmp_path / os.fsdecode(b"caf\xe9.py")).write_text("")
    with pytest.raises(FolderRefused, match=r"the name of caf\\xe9.py is not UTF-8"):
        packed(tmp_path)


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("name", ["secret.txt", "closed"])
def test_what_cannot_be_read_is_named(tmp_path: Path, begin: Callable[[Path], None], name: str) -> None:
    put(tmp_path, "secret.txt")
    put(tmp_path, "closed/a")
    begin(tmp_path)
    (tmp_path / name).chmod(0)
    try:
        with pytest.raises(FolderRefused, match=f"{name}.*cannot be read"):
            packed(tmp_path)
    finally:
        (tmp_path / name).chmod(0o700)


def test_a_folder_that_is_gone_empty_or_a_file_is_refused(tmp_path: Path, begin: Callable[[Path], None]) -> None:
    with pytest.raises(FolderRefused, match="gone: the folder cannot be read"):
        packed(tmp_path / "gone")
    with pytest.raises(FolderRefused, match="cannot be read"):
        packed(put(tmp_path, "file"))
    empty = tmp_path / "empty"
    empty.mkdir()
    begin(empty)
    with pytest.raises(FolderRefused, match="empty has no file to pack: "):
        packed(empty)
    put(empty, ".env")
    with pytest.raises(FolderRefused, match=r"no file to pack \(left out: .env looks like a secret\)"):
        packed(empty)


def test_code_that_is_too_large_is_refused_with_its_largest_entries_and_both_ways_out(tmp_path: Path) -> None:
    put(tmp_path, "train.py", "x" * 10)
    for number in range(3):
        put(tmp_path, f"data/{number}.bin", os.urandom(2 << 20))
    put(tmp_path, "model/w.bin", os.urandom(3 << 20))
    with pytest.raises(CodeTooLarge) as caught:
        packed(tmp_path)
    lines = str(caught.value).split("\n")
    assert lines[1:-1] == [
        "   6.0 MiB  data/",
        "   3.0 MiB  model/w.bin",
        "      10 B  train.py",
    ]
    assert "larger than 4.0 MiB when packed: 5 files, 9.0 MiB" in str(caught.value)
    assert all(way in str(caught.value) for way in (".torchqignore", "--exclude", "code_store"))


def test_a_file_that_is_far_too_large_is_refused_without_being_read(tmp_path: Path) -> None:
    put(tmp_path, "train.py")
    with put(tmp_path, "data.bin").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CodeTooLarge, match=r"1024 GiB  data\.bin"):
        packed(tmp_path)


def test_the_files_of_an_environment_do_not_count(
    tmp_path: Path, begin: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_listing, "MOST_ENTRIES", 3)
    put(tmp_path, "train.py")
    for name in ("pyvenv.cfg", "bin/python", "bin/pip", "lib/a.py", "lib/b.py"):
        put(tmp_path, f"mine/{name}")
    begin(tmp_path)
    assert names(packed(tmp_path)) == ["train.py"]


def test_a_folder_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_listing, "MOST_ENTRIES", 3)
    put(tmp_path, "train.py")
    for number in range(4):
        put(tmp_path, f"data/{number}")
    with pytest.raises(CodeTooLarge, match="more than 3 files, of 5 so far 4 in data: leave out"):
        packed(tmp_path)


def test_the_folder_of_a_local_cluster_is_never_packed(tmp_path: Path, begin: Callable[[Path], None]) -> None:
    for name in ("train.py", "state/objects.sqlite", "state/node.lock", "state/logs/a.log", "mine/objects.sqlite"):
        put(tmp_path, name)
    begin(tmp_path)
    assert names(packed(tmp_path)) == ["mine/objects.sqlite", "train.py"]


def test_a_long_look_through_a_folder_is_told(
    tmp_path: Path, begin: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        put(tmp_path, f"{number}/a.py")
    begin(tmp_path)
    monkeypatch.setattr(folder_listing, "TELL_SECONDS", 0.001)
    told: list[str] = []
    assert len(folder_listing.read(tmp_path, told.append).paths) == 300
    assert all(str(tmp_path) in line for line in told)
    assert told
