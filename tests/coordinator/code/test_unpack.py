"""The script of the init container on archives of all kinds. The script runs as in a pod."""

import ast
import gzip
import hashlib
import io
import os
import re
import resource
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.code import archive, config_maps, folder_listing, folder_store, pack, unpack
from coordinator.code.archive import Archive, CodeFile

pytestmark = pytest.mark.servers

TEXT = Path(unpack.__file__).read_text()
LIMITED = """
import os, resource
resource.setrlimit(resource.RLIMIT_AS, (int(os.environ["MEMORY"]), resource.RLIM_INFINITY))
"""
LIMIT = 1 << 20


def run(
    folder: Path, digest: str, *parts: bytes, store: bytes | None = None, memory: int = resource.RLIM_INFINITY
) -> subprocess.CompletedProcess[str]:
    """Run the script as the init container does, on parts of an archive, or on a store, with so much memory."""
    code = folder / "code"
    code.mkdir(exist_ok=True)
    variables = {"TORCHQ_VOLUME_TORCHQ_CODE": str(code)}
    for number, part in enumerate(parts, start=1):
        place = folder / str(number)
        place.mkdir(exist_ok=True)
        (place / "part").write_bytes(part)
        variables[f"TORCHQ_VOLUME_TORCHQ_PART_{number}"] = str(place)
    if store is not None:
        (folder / f"{digest}.tar.gz").write_bytes(store)
        variables["TORCHQ_VOLUME_TORCHQ_STORE"] = str(folder)
    command = [sys.executable, "-I", "-c", LIMITED + TEXT, digest]
    variables["MEMORY"] = str(memory)
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


def built(*files: CodeFile) -> Archive:
    return archive.build(sorted(files), LIMIT)


def raw(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w:gz") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return output.getvalue()


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): os.readlink(path) if path.is_symlink() else path.read_text()
        for path in folder.rglob("*")
        if (path.is_symlink() or path.is_file()) and path.name != unpack.MARK
    }


CODE = built(
    CodeFile("a b/ü.txt", "ä".encode()),
    CodeFile("run.sh", b"#!/bin/sh\n", executable=True),
    CodeFile("link", link="a b/ü.txt"),
    CodeFile("train.py", b"print(1)\n"),
)


@pytest.mark.parametrize("pieces", [1, 3])
def test_the_parts_of_an_archive_are_unpacked_with_modes_and_links(tmp_path: Path, pieces: int) -> None:
    size = -(-len(CODE.content) // pieces)
    parts = [CODE.content[start : start + size] for start in range(0, len(CODE.content), size)]
    done = run(tmp_path, CODE.digest, *parts)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"torchq: unpacked 4 files of {CODE.digest[:8]}\n"
    code = tmp_path / "code"
    assert tree(code) == {"a b/ü.txt": "ä", "run.sh": "#!/bin/sh\n", "link": "a b/ü.txt", "train.py": "print(1)\n"}
    assert [os.access(code / name, os.X_OK) for name in ("run.sh", "train.py")] == [True, False]


def test_an_archive_of_a_store_is_unpacked_and_a_second_run_leaves_it_as_the_job_has_made_it(tmp_path: Path) -> None:
    code = tmp_path / "code"
    assert run(tmp_path, CODE.digest, store=CODE.content).returncode == 0
    (code / "run.sh").unlink()
    (code / "run.sh").mkdir()
    done = run(tmp_path, CODE.digest, store=CODE.content)
    assert (done.returncode, done.stderr) == (0, "")
    assert (code / "run.sh").is_dir()
    assert (code / "train.py").read_text() == "print(1)\n"


def test_a_run_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    assert run(tmp_path, CODE.digest, CODE.content).returncode == 0
    (tmp_path / "code" / unpack.MARK).write_text("")
    (tmp_path / "code" / "train.py").write_text("half")
    assert run(tmp_path, CODE.digest, CODE.content).returncode == 0
    assert (tmp_path / "code" / "train.py").read_text() == "print(1)\n"


@pytest.mark.parametrize(
    "parts", [[], [b"x"], [CODE.content[:-1]], [CODE.content, b"x"]], ids=["none", "other", "short", "long"]
)
def test_code_with_another_digest_is_not_unpacked(tmp_path: Path, parts: list[bytes]) -> None:
    done = run(tmp_path, CODE.digest, *parts)
    assert done.returncode == 1
    assert done.stderr.startswith("torchq: the digest of the code is ")
    assert done.stderr.count("\n") == 1
    assert tree(tmp_path / "code") == {}


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "0" * 64, store=None)
    assert "digest" in done.stderr
    (tmp_path / "other").mkdir()
    done = subprocess.run(
        [sys.executable, "-I", "-c", TEXT, "0" * 64],
        env={"TORCHQ_VOLUME_TORCHQ_CODE": str(tmp_path), "TORCHQ_VOLUME_TORCHQ_STORE": str(tmp_path / "other")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"torchq: {tmp_path}/other/{'0' * 64}.tar.gz cannot be read (No such file or directory): submit the job again\n"
    )


def hostile(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


@pytest.mark.parametrize(
    "members",
    [
        [hostile("../evil")],
        [hostile("/tmp/evil")],
        [hostile("a/../../evil")],
        [hostile("link", tarfile.SYMTYPE, "/etc")],
        [hostile("a/link", tarfile.SYMTYPE, "../../outside")],
        [hostile("fifo", tarfile.FIFOTYPE)],
        [hostile("hard", tarfile.LNKTYPE, "../outside")],
    ],
)
def test_nothing_is_written_outside_the_folder(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    content = raw((member, b"") for member in members)
    before = {path for path in tmp_path.rglob("*") if "code" not in path.parts}
    done = run(tmp_path, hashlib.sha256(content).hexdigest(), content)
    assert done.returncode == 1
    assert done.stderr.startswith("torchq: the code has ")
    after = {path for path in tmp_path.rglob("*") if "code" not in path.parts}
    assert after - before == {tmp_path / "1", tmp_path / "1" / "part"}
    assert tree(tmp_path / "code") == {}


def test_a_link_that_the_job_has_made_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a b").symlink_to(tmp_path)
    done = run(tmp_path, CODE.digest, CODE.content)
    assert done.returncode == 1
    assert "outside of its folder" in done.stderr
    assert not (tmp_path / "ü.txt").exists()


class Zeros(io.RawIOBase):
    """A file of zeros without end."""

    def read(self, size: int = -1) -> bytes:
        return bytes(size)


def zipped(*members: tuple[tarfile.TarInfo, int]) -> bytes:
    """Return an archive whose members have these sizes, all zeros."""
    output = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=output, mode="wb", compresslevel=1) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for member, size in members:
            member.size = size
            tar.addfile(member, Zeros())
            tar.members = []
    return output.getvalue()


def header(size: int) -> bytes:
    """Return an archive whose first header has a size."""
    member = hostile("h", tarfile.XHDTYPE)
    member.size = size
    return gzip.compress(member.tobuf(tarfile.USTAR_FORMAT) + bytes(size), 1)


def sparse(size: int) -> bytes:
    """Return an archive with a file that has a size and no content."""
    member = hostile("a")
    member.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(size), "GNU.sparse.numblocks": "1"}
    return zipped((member, 0))


MIB = 1 << 20
BOMBS = {
    "one file": lambda: zipped((hostile("a"), 300 * MIB)),
    "many files": lambda: zipped(*((hostile(str(number)), MIB) for number in range(300))),
    "a header": lambda: header(300 * MIB),
    "no content": lambda: sparse(1 << 40),
    "many members": lambda: gzip.compress(hostile("a", tarfile.SYMTYPE, "b").tobuf() * 110_001 + bytes(1024), 1),
}


@pytest.mark.parametrize("name", BOMBS)
def test_an_archive_that_becomes_larger_than_the_packer_allows_is_refused_with_words(tmp_path: Path, name: str) -> None:
    content = BOMBS[name]()
    assert len(content) < 4 * MIB
    done = run(tmp_path, hashlib.sha256(content).hexdigest(), content, memory=160 * MIB)
    assert done.returncode == 1
    assert re.fullmatch("torchq: the code (has|is larger than) .*\n", done.stderr)
    assert sum(path.stat().st_blocks * 512 for path in (tmp_path / "code").rglob("*")) < 280 * MIB


def test_code_as_large_as_the_packer_allows_is_unpacked_in_bounded_memory(tmp_path: Path) -> None:
    content = zipped((hostile("a"), 250 * MIB))
    done = run(tmp_path, hashlib.sha256(content).hexdigest(), content, memory=160 * MIB)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "code" / "a").stat().st_size == 250 * MIB


def test_the_limits_are_those_of_the_packer() -> None:
    room = 16 * MIB
    assert unpack.LARGEST_ARCHIVE == folder_store.LIMIT
    assert pack.LARGEST_RATIO * config_maps.LIMIT + room == unpack.LARGEST_OF_PARTS
    assert pack.LARGEST_SUM + room == unpack.LARGEST_OF_STORE
    assert folder_listing.MOST_ENTRIES + len(pack.client_files()) < unpack.MOST_MEMBERS
    assert sum(len(file.content) for file in pack.client_files()) + 512 * 3 * 1_000 < room


def test_the_script_is_read_by_python_3_6_and_has_nothing_that_kubernetes_expands() -> None:
    program = ast.parse(TEXT, feature_version=(3, 6))
    assert "$" not in TEXT
    unions = [
        each for node in ast.walk(program) if isinstance(node, ast.arg) and node.annotation for each in ast.walk(node)
    ]
    assert not any(isinstance(each, ast.BitOr) for each in unions)  # `int | None` is evaluated, and fails before 3.10


CONTENTS = st.dictionaries(
    st.text("abü -", min_size=1, max_size=4), st.tuples(st.binary(max_size=64), st.booleans()), max_size=6
)


@settings(deadline=None, max_examples=50)
@given(CONTENTS)
def test_the_same_content_gives_the_same_archive_and_other_content_another(
    contents: dict[str, tuple[bytes, bool]],
) -> None:
    files = [CodeFile(path, content, executable) for path, (content, executable) in sorted(contents.items())]
    first, second = archive.build(files, LIMIT), archive.build(iter(files), LIMIT)
    assert first == second
    assert hashlib.sha256(first.content).hexdigest() == first.digest
    with tarfile.open(fileobj=io.BytesIO(first.content), mode="r:gz") as tar:
        found = {member.name: (tar.extractfile(member).read(), member.mode == 0o755) for member in tar}  # type: ignore[union-attr]
        assert {(member.mtime, member.uid, member.gid, member.uname) for member in tar} <= {(0, 0, 0, "")}
    assert found == contents
    more = [*files, CodeFile("z", b"more")]
    assert archive.build(more, LIMIT).digest != first.digest


def test_an_archive_above_the_limit_is_not_read_to_its_end() -> None:
    read = []

    def endless() -> Iterable[CodeFile]:
        for number in range(1_000):
            read.append(number)
            yield CodeFile(str(number), os.urandom(10_000))

    with pytest.raises(archive.LimitReached):
        archive.build(endless(), 100_000)
    assert len(read) < 30
