"""The chart as Helm's own engine renders it, and the overlays as kubectl does.

One rule: this is the only door to `helm_python`. No cluster is contacted.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import helm_python
import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "torchq"
OVERLAYS = ROOT / "deploy" / "kustomize"
RELEASE, NAMESPACE = "torchq", "torchq-system"
NOTES = "torchq/templates/NOTES.txt"

Manifest = dict[str, Any]
# PyYAML's loader in C, ten times as fast, where it was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class RefusedValues(Exception):
    """The schema or a check of the chart refuses the values."""


def render(
    values: Mapping[str, Any] | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE, chart: Path = CHART
) -> list[Manifest]:
    """Return the objects that Helm renders without a cluster. Raises RefusedValues."""
    return objects(templates(values, release=release, namespace=namespace, chart=chart))


def objects(texts: Mapping[str, str]) -> list[Manifest]:
    """Return the objects of rendered templates."""
    return [document for text in texts.values() for document in parse(text)]


def templates(
    values: Mapping[str, Any] | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE, chart: Path = CHART
) -> dict[str, str]:
    """Return the text that Helm renders from each template except the notes, by the template's path. Raises
    RefusedValues.
    """
    with helm_python.Chart.load(chart) as loaded:
        try:
            helm_python.validate_release_name(release)
            loaded.validate_schema(dict(values or {}))
            rendered = loaded.render(dict(values or {}), name=release, namespace=namespace, is_install=True)
        except helm_python.HelmError as error:
            raise RefusedValues(str(error)) from error
    return {name: text for name, text in rendered.items() if name != NOTES}


def parse(text: str) -> list[Manifest]:
    """Return the objects in a YAML stream."""
    return [document for document in yaml.load_all(text, _LOADER) if document]


def lint(values: Mapping[str, Any] | None = None) -> list[str]:
    """Return the output of Helm's linter for the chart, warnings included."""
    report = helm_python.lint(CHART, dict(values or {}), strict=True, namespace=NAMESPACE)
    return [f"{each['path']}: {each['error']}" for each in report["messages"] if each["severity"] > 1]


def overlays() -> Sequence[Path]:
    """Return the folders of kustomize."""
    return sorted(each.parent for each in OVERLAYS.glob("*/kustomization.yaml"))


def kustomize(folder: Path) -> list[Manifest]:
    """Return the objects of an overlay. Raises RefusedValues with the message of kubectl."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise RefusedValues(done.stderr.strip())
    return parse(done.stdout)


def has_kubectl() -> bool:
    """Return whether kubectl is on PATH."""
    return shutil.which("kubectl") is not None
