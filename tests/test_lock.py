"""Lock files: the files pin every installed package by version and hashes, and all installations verify the hashes."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FILES = {"": "requirements.lock", **{each: f"requirements-{each}.lock" for each in ("postgres", "dev", "demo")}}
ENTRY = re.compile(r"^([a-z0-9-]+)==(\S+)(?: ; .+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
UNHASHED = {"torch"}


def entries(extra: str) -> dict[str, tuple[str, list[str]]]:
    """Return version and hashes of each package in a lock file."""
    text = (ROOT / FILES[extra]).read_text()
    return {name: (version, re.findall(r"[0-9a-f]{64}", hashes)) for name, version, hashes in ENTRY.findall(text)}


def requirements(extra: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return [Requirement(each) for each in found]


@pytest.fixture(scope="module")
def lock() -> ModuleType:
    """Load the program that writes the lock files."""
    pytest.importorskip("pip", reason="the program is pip's, and this environment was made without it")
    spec = importlib.util.spec_from_file_location("lock", ROOT / ".ci" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["lock"] = module  # NamedTuple looks up its module there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("extra", FILES)
def test_every_entry_of_a_lock_file_has_hashes(extra: str) -> None:
    text = (ROOT / FILES[extra]).read_text()
    left = ENTRY.sub("", text)
    assert all(line.startswith("#") for line in left.splitlines()), left
    assert entries(extra)
    assert "://" not in text, "each machine itself decides where packages come from"


@pytest.mark.parametrize("extra", FILES)
def test_every_requirement_is_locked_at_an_allowed_version(extra: str) -> None:
    locked = entries("") | entries(extra)
    for each in requirements(extra):
        name = canonicalize_name(each.name)
        if name not in UNHASHED:
            assert each.specifier.contains(locked[name][0]), each


def test_pytorch_is_pinned_without_a_hash() -> None:
    assert not UNHASHED & {name for extra in FILES for name in entries(extra)}
    assert [str(each) for each in requirements("demo") if each.name in UNHASHED] == ["torch==2.13.0"]


def test_lock_files_neither_repeat_nor_contradict_each_other() -> None:
    base = entries("")
    assert not base.keys() & (entries("postgres") | entries("dev") | entries("demo")).keys()
    others = entries("postgres") | entries("demo")
    assert all(entries("dev")[name] == found for name, found in others.items() if name in entries("dev"))
    assert "setuptools" in base, "torchq is built without a download"


def test_makefile_and_dockerfile_install_with_required_hashes() -> None:
    makefile, dockerfile = (ROOT / "Makefile").read_text(), (ROOT / "deploy/image/Dockerfile").read_text()
    assert "LOCKED = $(PIP) --require-hashes --requirement requirements.lock --requirement" in makefile
    for extra in ("dev", "demo"):
        assert f"$(LOCKED) {FILES[extra]}" in makefile
    unhashed = [line for line in makefile.splitlines() if "$(PIP)" in line and not line.startswith("LOCKED")]
    assert len(unhashed) == 2, "torchq itself is installed in two places"
    installs = [line for line in dockerfile.splitlines() if re.search(r"pip\b.* (install|wheel) ", line)]
    assert [line.partition("--requirement ")[2].strip("; \\") for line in installs if "--require-hashes" in line] == [
        "tools.lock",
        "packages.lock",
    ]
    unhashed += [line for line in installs if "--require-hashes" not in line and "--no-index" not in line]
    assert all("--no-build-isolation" in line for line in unhashed), "nothing else is downloaded to build it"
    assert len(installs) == 4, "both locks, and torchq itself, which is built and installed without an index"


def test_the_dockerfile_requires_a_base_image_by_digest() -> None:
    lines = (ROOT / "deploy/image/Dockerfile").read_text().splitlines()
    assert "ARG BASE" in lines, "there is no default, since a digest of today is old tomorrow"
    assert [line for line in lines if line.startswith("FROM ")] == ["FROM ${BASE} AS build", "FROM ${BASE}"]
    [check] = [line for line in lines if "@sha256:*|localhost/*)" in line]
    assert "exit 1" in check


def test_the_lock_program_reads_what_it_writes(lock: ModuleType) -> None:
    pins = {"a-b": lock.Pin("1.0"), "c": lock.Pin("2", 'python_full_version < "3.11.3"')}
    text = lock.text(pins, {"a-b": {"1" * 64, "0" * 64}, "c": {"2" * 64}})
    assert text == (
        f"a-b==1.0 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}\n"
        f'c==2 ; python_full_version < "3.11.3" \\\n    --hash=sha256:{"2" * 64}\n'
    )
    assert lock.parse_pins(text.splitlines()) == pins
    assert [name for name, *_ in ENTRY.findall(text)] == ["a-b", "c"]


def test_elsewhere_finds_dependencies_of_another_python_or_platform(lock: ModuleType) -> None:
    requires = ["known>=1", 'old ; python_full_version < "3.11.3"', 'mac ; sys_platform == "darwin"',
                'windows ; sys_platform == "win32"', 'ancient ; python_version < "3.11"', 'more ; extra == "more"',
                "plain"]  # fmt: skip
    found = [each.name for each in lock.elsewhere(requires, {"known": lock.Pin("1")})]
    assert found == ["old", "mac"]
