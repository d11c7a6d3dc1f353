"""The wheel: it holds every package with its data and nothing else, and its command starts."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("crds", "kube", "embedded", "gang", "queues", "reconcilers", "coordinator")
DATA = (".yaml", ".lua")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from a copy of the sources, so that the build leaves no files in the source tree."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "bench", "examples", "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    script = f"from setuptools import build_meta; print(build_meta.build_wheel({str(target)!r}))"
    built = subprocess.run([sys.executable, "-c", script], cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return target / built.stdout.split()[-1]


@pytest.fixture(scope="module")
def content(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def sources() -> set[str]:
    """Return the files that the wheel must hold: all modules of the packages, and their data files."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*"))
    return {str(path.relative_to(ROOT)) for path in files if path.suffix in (".py", *DATA)}


def test_the_wheel_holds_exactly_the_sources(content: set[str]) -> None:
    assert content == sources()


def test_the_wheel_holds_crds_and_lua_scripts(content: set[str]) -> None:
    assert {
        "crds/manifests/torchjobs.yaml",
        "crds/manifests/tenantqueues.yaml",
        "crds/manifests/scaleouts.yaml",
        "crds/manifests/scaleins.yaml",
        "queues/lua/store/commit.lua",
    } <= content


def test_the_wheel_holds_no_tests_benchmarks_or_examples(content: set[str]) -> None:
    assert {name.partition("/")[0] for name in content} == set(PACKAGES)


def test_the_wheel_declares_its_dependencies_and_the_torchq_command(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    with zipfile.ZipFile(wheel) as archive:
        folder = f"torchq-{project['version']}.dist-info"
        metadata = archive.read(f"{folder}/METADATA").decode()
        commands = archive.read(f"{folder}/entry_points.txt").decode()
        assert f"{folder}/licenses/LICENSE" in archive.namelist() or f"{folder}/LICENSE" in archive.namelist()
    assert f"Version: {project['version']}" in metadata
    assert metadata.count("Requires-Dist:") >= len(project["dependencies"])
    assert "torchq = coordinator.cli.main:main" in commands


def test_the_unpacked_wheel_runs_without_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    """From another folder, the command must print its version and the CRDs."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(tmp_path, "--version") == f"torchq {version}\n"
    assert run(tmp_path, "crds").count("kind: CustomResourceDefinition") == 4


def run(place: Path, *arguments: str) -> str:
    """Run the command from the files in `place` only. Hide an editable install, which could supply missing files."""
    script = (
        f"import sys; sys.meta_path[:] = [each for each in sys.meta_path if 'editable' not in str(each).lower()]; "
        f"sys.path[:] = [{str(place)!r}] + [each for each in sys.path if each not in ('', {str(ROOT)!r})]; "
        "from coordinator.cli import main as cli; assert cli.__file__.startswith(sys.path[0]), cli.__file__; cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
