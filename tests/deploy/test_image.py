"""The image: the content of its Dockerfile, the files in its context, and what `make image` refuses before it builds.

The build itself takes minutes and needs a builder. `make image` builds the image and runs it.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.image import build, builders
from deploy.image.builders import Image, ImageError

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILE = (ROOT / "deploy/image/Dockerfile").read_text()
DIGEST = "sha256:" + "0" * 64
SECRETS = (".env", "coordinator/.env", "kubeconfig", "coordinator/kubeconfig", "crds/a/tls.key", ".git/config",
           "tests/redis.password", "deploy/redis/users.acl", "deploy/image/wheels/.netrc")  # fmt: skip
WANTED = (*build.LOCKS, "LICENSE", "crds/manifests/a.yaml", "queues/lua/lib/store.lua", "coordinator/a/b/c.py",
          "deploy/image/wheels/a.whl", "deploy/image/wheels/.gitignore")  # fmt: skip


def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage of the Dockerfile, with their arguments in one line."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    found: list[list[tuple[str, str]]] = [[]]
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        found[-1].append((word, re.sub(r"\s+", " ", rest)))
    return found[1:]


def arguments(stage: list[tuple[str, str]], word: str) -> list[str]:
    return [rest for each, rest in stage if each == word]


def entries(lock: Path) -> dict[str, set[str]]:
    """Return the hashes of each package in a lock file, by `NAME==VERSION`."""
    found = re.findall(r"^([a-z0-9-]+==[^\s;]+)(.*(?:\n    .*)+)", lock.read_text(), re.MULTILINE)
    return {pin: set(re.findall(r"[0-9a-f]{64}", hashes)) for pin, hashes in found}


def fake(folder: Path, name: str, script: str = "exit 0") -> None:
    """Put a program on a PATH that has nothing else."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def make_image(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program of `make image` with only the programs of a folder on PATH."""
    command = [sys.executable, "-m", "deploy.image.build"]
    variables = {**os.environ, "PATH": str(folder), "BASE": "", "BUILDER": "", "IMAGE": "", **environment}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=60, check=False)


def wheel(folder: Path, name: str, tag: str) -> str:
    """Write a wheel of version 1 and return its hash."""
    path = folder / f"{name}-1-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        archive.writestr(f"{name}-1.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        archive.writestr(f"{name}-1.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_dockerfile_copies_every_package_of_the_project() -> None:
    packages = {each.rstrip("*") for each in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    copied = [rest.split() for rest in arguments(stages()[0], "COPY")]
    assert {source for source, target in (each for each in copied if len(each) == 2) if source == target} == packages


def test_the_last_stage_runs_nothing_and_takes_only_two_folders_of_the_build() -> None:
    _, last = stages()
    assert arguments(last, "FROM") == ["${BASE}"]
    assert arguments(last, "RUN") == [], "a command here would need a shell in the base, and make a layer"
    assert arguments(last, "COPY") == [
        "--from=build /opt/torchq /opt/torchq",  # the packages: one layer
        "--from=build /staged/opt/torchq /opt/torchq",
    ]
    assert arguments(last, "USER") == [build.USER]
    assert [json.loads(each) for each in arguments(last, "ENTRYPOINT")] == [["/opt/torchq/bin/torchq"]]


def test_the_labels_agree_with_the_project() -> None:
    _, last = stages()
    found = dict(re.findall(r'org\.opencontainers\.image\.(\S+?)="([^"]*)"', " ".join(arguments(last, "LABEL"))))
    project = PROJECT["project"]
    assert set(found) == set(build.LABELS)
    assert found["title"] == "torchq", "the name of the command, not the name of the distribution"
    names = ("description", "version", "license")
    assert [found[each] for each in ("description", "version", "licenses")] == [project[each] for each in names]
    assert (found["revision"], found["base.name"]) == ("${REVISION}", "${BASE}")
    assert {"BASE", "REVISION=unknown"} <= set(arguments(last, "ARG"))


def test_the_lock_is_split_into_what_builds_torchq_and_what_runs_it(tmp_path: Path) -> None:
    for name in build.LOCKS:
        shutil.copy(ROOT / name, tmp_path)
    [install] = [rest for rest in arguments(stages()[0], "RUN") if "requirements.lock" in rest]
    for command in re.findall(r"sed [^;]+", install):
        subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    tools, packages = (entries(tmp_path / f"{name}.lock") for name in ("tools", "packages"))
    assert [pin.partition("==")[0] for pin in tools] == ["setuptools"]
    assert tools | packages == {pin: found for name in build.LOCKS for pin, found in entries(ROOT / name).items()}
    assert not tools.keys() & packages.keys()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("buildah"), reason="needs buildah as root")
def test_the_context_has_what_the_build_copies_and_no_secret(tmp_path: Path) -> None:
    context, target = tmp_path / "context", tmp_path / "target"
    for name in (*WANTED, *SECRETS):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).write_text(name)
    shutil.copy(ROOT / ".dockerignore", context)
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
    storage = ["--storage-driver=vfs", f"--root={tmp_path}/root", f"--runroot={tmp_path}/run"]
    command = ["buildah", *storage, "bud", "--quiet", "--isolation=chroot", f"--file={tmp_path}/Dockerfile",
               f"--output=type=local,dest={target}", str(context)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()} == set(WANTED)


@pytest.mark.parametrize("base", [f"python:3.11-slim@{DIGEST}", f"registry:5000/python@{DIGEST}", "localhost/base:1"])
def test_a_base_with_a_digest_or_of_this_machine_is_accepted(base: str) -> None:
    builders.check_base(base)


@pytest.mark.parametrize("base", ["python:3.11-slim", "python@sha256:12", f"{DIGEST}", "localhosts/base", "python@"])
def test_a_base_without_a_digest_is_refused_before_anything_is_built(tmp_path: Path, base: str) -> None:
    with pytest.raises(ImageError, match=f"BASE: {base} has no digest.*NAME@sha256:DIGEST.*localhost/NAME"):
        builders.check_base(base)


def test_make_image_refuses_a_base_without_a_digest_with_one_message(tmp_path: Path) -> None:
    done = make_image(tmp_path, BASE="python:3.11-slim")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("image: BASE: python:3.11-slim has no digest")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("present", "root", "wanted", "chosen"),
    [
        (("docker",), True, "", "docker"),
        (("podman", "docker"), True, "", "podman"),
        (("buildah", "podman", "docker"), True, "", "buildah"),
        (("buildah", "podman", "docker"), False, "", "podman"),
        (("buildah", "podman", "docker"), True, "docker", "docker"),
    ],
)
def test_the_builder_is_the_wanted_one_or_the_first_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: tuple[str, ...], root: bool, wanted: str, chosen: str
) -> None:
    for name in present:
        fake(tmp_path, name)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    assert builders.choose(wanted).name == chosen


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("", "BUILDER: buildah, podman and docker are not on PATH. Install one"),
        ("podman", "BUILDER: podman is not on PATH. Install one"),
        ("kaniko", "BUILDER: kaniko is not known; use buildah, podman or docker"),
    ],
)
def test_a_builder_that_is_missing_is_named(tmp_path: Path, wanted: str, message: str) -> None:
    done = make_image(tmp_path, BUILDER=wanted)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_builder_that_does_not_answer_is_named_with_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, "docker", "echo no daemon >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match=r"BUILDER: docker does not work here: .*\nno daemon"):
        builders.choose("")


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("", "BASE: none is given, and no Debian base can be made: debootstrap is not on PATH"),
        ("localhost/none", "BASE: docker has no image localhost/none on this machine"),
        (f"python@{DIGEST}", "`docker pull python@"),
    ],
)
def test_a_base_that_is_missing_is_named(tmp_path: Path, base: str, message: str) -> None:
    fake(tmp_path, "docker", '[ "$1" = version ]')
    done = make_image(tmp_path, BASE=base)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


GOOD = Image(
    build.USER, ("/opt/torchq/bin/torchq",), (), {f"org.opencontainers.image.{each}": "1" for each in build.LABELS}, 1
)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (replace(GOOD, user=""), "the user is root"),
        (replace(GOOD, user="65532"), "the user is 65532, not 65532:65532"),
        (replace(GOOD, entrypoint=("/bin/sh", "-c", "torchq")), "the entry point is"),
        (replace(GOOD, labels={}), "labels without a value: title, description"),
        (replace(GOOD, labels={**GOOD.labels, "org.opencontainers.image.revision": "2"}), "the label revision is 2"),
    ],
)
def test_a_flaw_of_an_image_is_named(image: Image, message: str) -> None:
    assert build.check_config(GOOD, {"revision": "1"}).startswith("user 65532:65532")
    with pytest.raises(ImageError, match=message):
        build.check_config(image, {"revision": "1"})


def test_the_table_is_good_only_if_every_line_is(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> str:
        raise ImageError("for a reason")

    table = build.Table()
    assert not table.is_good(), "a table without lines proves nothing"
    assert table.check("one", lambda: "detail")
    assert table.is_good()
    assert not table.check("two", fails)
    assert not table.is_good()
    assert re.findall(r"(\w+) +(ok|FAILED) +(.+)", capsys.readouterr().out) == [
        ("one", "ok", "detail"),
        ("two", "FAILED", "for a reason"),
    ]


def test_wheels_are_downloaded_for_the_base_and_checked_by_their_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base may be older than this Python, so entries for other Pythons are downloaded, too."""
    pytest.importorskip("pip", reason="pip downloads the wheels, and this environment was made without it")
    source, folder = tmp_path / "source", tmp_path / "wheels"
    source.mkdir()
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(source))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    hashes = wheel(source, "a", "py3-none-any"), wheel(source, "b", "cp311-cp311-manylinux_2_17_" + os.uname().machine)
    wheel(source, "b", "cp312-cp312-manylinux_2_17_" + os.uname().machine)
    lock = (
        f'a==1 ; python_full_version < "3.11.3" \\\n    --hash=sha256:{hashes[0]}\n'
        f"b==1 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{hashes[1]}\n"
    )
    (folder / "other-1-py3-none-any.whl").write_text("of an older lock file")
    assert build.download_wheels(lock, folder, "3.11") == 2
    assert {path.name.partition("-")[0] for path in folder.iterdir()} == {"a", "b"}
    with pytest.raises(ImageError, match="b==1"):
        build.download_wheels(lock.replace(hashes[1], "1" * 64), shutil.copytree(folder, tmp_path / "more"), "3.11")
    shutil.rmtree(source)
    assert build.download_wheels(lock, folder, "3.11") == 0, "a full folder needs no index"
    with pytest.raises(ImageError, match="b==1"):
        build.download_wheels(lock, folder, "3.12")
