"""The script of the init container on archives of all kinds. The script runs as in a pod."""

import ast
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.code import archive, unpack
from coordinator.code.archive import Archive, CodeFile

pytestmark = pytest.mark.servers

TEXT = Path(unpack.__file__).read_text()
LIMIT = 1 << 20


def run(folder: Path, digest: str, *parts: bytes, store: bytes | None = None) -> subprocess.CompletedProcess[str]:
    """Run the script as the init container does, on parts of an archive, or on a store."""
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
    command = [sys.executable, "-I", "-c", TEXT, digest]
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


def test_the_script_is_read_by_python_3_6_and_has_nothing_that_kubernetes_expands() -> None:
    ast.parse(TEXT, feature_version=(3, 6))
    assert "$" not in TEXT


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
