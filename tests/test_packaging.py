"""Both wheels: each wheel holds its packages with their data and nothing else. The command starts, and the client can
be imported.
"""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from coordinator import release
from torchq import _version

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[1]
PACKAGES = ("torchq", "crds", "kube", "embedded", "gang", "queues", "history", "reconcilers", "coordinator")
DATA = (".yaml", ".lua", ".typed", ".html", ".css", ".js", ".svg")
CLIENT = ROOT / "deploy" / "client"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from a copy of the sources, so that the build leaves no files in the source tree."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "bench", "examples", "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return build(source, target)


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of the package that users import, from a copy of its sources."""
    source, target = tmp_path_factory.mktemp("client-source"), tmp_path_factory.mktemp("client-wheel")
    shutil.copytree(ROOT / "torchq", source / "torchq", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(CLIENT, source / "deploy" / "client", ignore=shutil.ignore_patterns("__pycache__", "build"))
    return build(source / "deploy" / "client", target)


def build(source: Path, target: Path) -> Path:
    """Build a wheel of the project in `source` into the folder `target`, and return its path."""
    script = f"from setuptools import build_meta; print(build_meta.build_wheel({str(target)!r}))"
    built = subprocess.run([sys.executable, "-c", script], cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return target / built.stdout.split()[-1]


@pytest.fixture(scope="module")
def content(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def sources(packages: Sequence[str] = PACKAGES) -> set[str]:
    """Return the files that a wheel must hold: all modules of the packages, and their data files."""
    files = (path for package in packages for path in (ROOT / package).rglob("*"))
    return {str(path.relative_to(ROOT)) for path in files if path.suffix in (".py", *DATA)}


def test_the_wheel_holds_exactly_the_sources(content: set[str]) -> None:
    assert content == sources()


def test_the_wheel_holds_crds_lua_scripts_and_pages(content: set[str]) -> None:
    assert {
        "crds/manifests/torchjobs.yaml",
        "crds/manifests/tenantqueues.yaml",
        "crds/manifests/scaleouts.yaml",
        "crds/manifests/scaleins.yaml",
        "queues/lua/store/commit.lua",
        "coordinator/dashboard/templates/frame.html",
        "coordinator/dashboard/static/dashboard.js",
    } <= content


def test_the_wheel_holds_no_tests_benchmarks_or_examples(content: set[str]) -> None:
    assert {name.partition("/")[0] for name in content} == set(PACKAGES)


def test_the_wheel_declares_its_dependencies_and_the_torchq_command(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    with zipfile.ZipFile(wheel) as archive:
        folder = f"torchq_coordinator-{project['version']}.dist-info"
        metadata = archive.read(f"{folder}/METADATA").decode()
        commands = archive.read(f"{folder}/entry_points.txt").decode()
        assert f"{folder}/licenses/LICENSE" in archive.namelist() or f"{folder}/LICENSE" in archive.namelist()
    assert f"Version: {project['version']}" in metadata
    assert metadata.count("Requires-Dist:") >= len(project["dependencies"])
    assert "torchq = coordinator.__main__:main" in commands


def test_the_unpacked_wheel_runs_without_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    """From another folder, the command must print its version and the CRDs."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(tmp_path, "--version") == f"torchq {version}\n"
    assert run(tmp_path, "crds").count("kind: CustomResourceDefinition") == 5


def test_the_unpacked_wheel_makes_the_tables_of_a_history(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    made = "from history.sql.migrations import migrate; print(migrate.__file__, migrate.migrate('sqlite:///h.sqlite'))"
    assert run_code(tmp_path, made) == (
        f"{tmp_path}/history/sql/migrations/migrate.py the history h.sqlite has tables of the version 1 now; migrated\n"
    )


def test_the_wheel_of_the_client_holds_the_package_that_users_import_alone(client_wheel: Path) -> None:
    with zipfile.ZipFile(client_wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    assert {name for name in names if ".dist-info/" not in name} == sources(["torchq"])
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert f"Name: {_version.CLIENT_PACKAGE}\nVersion: {_version.VERSION}\n" in metadata
    assert "Requires-Dist" not in metadata


def test_the_wheel_of_the_client_is_imported_without_any_other_package(client_wheel: Path, tmp_path: Path) -> None:
    """The test runs in a separate environment, in a folder whose packages have the same names as packages of torchq."""
    for name in ("kube", "embedded", "queues", "gang", "coordinator"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('this is a project of a user')\n")
    code = (
        "import torchq, torchq.aio, sys; print(torchq.__version__, [n for n in sys.modules if n in ('kube', 'click')])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = ['.', {str(client_wheel)!r}]; {code}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{_version.VERSION} []\n", "")


def test_names_and_versions_of_both_distributions_are_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["version"]) == (_version.PROGRAM_PACKAGE, _version.VERSION)
    assert (client["name"], release.DISTRIBUTION) == (_version.CLIENT_PACKAGE, _version.PROGRAM_PACKAGE)


def test_everything_that_names_a_release_names_the_newest_of_the_changelog() -> None:
    """An older image keeps its own name, and a user who upgrades finds the section of the changelog that belongs to an
    image.
    """
    newest, section = re.findall(
        r"^## ([0-9]+\.[0-9]+\.[0-9]+)\n(.*?)(?=^## |\Z)", (ROOT / "CHANGELOG.md").read_text(), re.M | re.S
    )[0]
    assert "\nUpgrade" in section
    assert "\nRollback" in section
    named = {
        "torchq/_version.py": r'VERSION = "(.+)"',
        "deploy/helm/torchq/Chart.yaml": r"^(?:appV|v)ersion: (.+)",
        "deploy/image/Dockerfile": r'image\.version="(.+?)"',
        "deploy/kustomize/default/kustomization.yaml": r"newTag: (.+)",
        "deploy/kustomize/with-recorder/kustomization.yaml": r"newTag: (.+)",
        "deploy/kustomize/with-dashboard/kustomization.yaml": r"newTag: (.+)",
        "deploy/kustomize/default/namespace.yaml": r"io/version: (.+)",
        "README.md": r"torchq:([0-9.]+)",
    }
    found = {path: set(re.findall(text, (ROOT / path).read_text(), re.M)) for path, text in named.items()}
    assert found == {path: {newest} for path in named}


def run(place: Path, *arguments: str) -> str:
    """Run the command from the files in `place` only."""
    code = (
        "from coordinator.cli import main as cli; assert cli.__file__.startswith(sys.path[0]), cli.__file__; cli.main()"
    )
    return run_code(place, code, *arguments)


def run_code(place: Path, code: str, *arguments: str) -> str:
    """Run Python with the files in `place` only. Hide an editable install, which could supply missing files."""
    script = (
        f"import sys; sys.meta_path[:] = [each for each in sys.meta_path if 'editable' not in str(each).lower()]; "
        f"sys.path[:] = [{str(place)!r}] + [each for each in sys.path if each not in ('', {str(ROOT)!r})]; "
        f"{code}"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
