"""`make chart`: lint the chart, render it over a matrix of values, and check every object that comes out.

One rule: the check ends with a table of all checks, and its exit code says whether all of them hold.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import click

from coordinator.cli import output
from deploy import chart, generate, matrix
from deploy.chart import RefusedValues
from deploy.checks import installation, schemas
from deploy.matrix import Case, Refusal

RELEASES = "tests/deploy/test_release.py"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    subject: str
    condition: str
    problems: tuple[str, ...]
    is_skipped: bool = False

    @property
    def verdict(self) -> str:
        """The result in one word."""
        return "skipped" if self.is_skipped else "failed" if self.problems else "ok"


def check_files() -> list[str]:
    """Return the generated files that differ from their sources."""
    stale = [path for path, text in generate.files().items() if path.read_text() != text]
    stale += [path for path, text in generate.bases().items() if not path.exists() or path.read_text() != text]
    return [f"{path.relative_to(chart.ROOT)} is stale: run `make manifests`" for path in stale]


def check_case(case: Case, versions: list[str]) -> list[str]:
    """Return the problems of the objects that the chart renders from a case."""
    try:
        texts, again = (chart.templates(case.values, release=case.release, namespace=case.namespace) for _ in range(2))
    except RefusedValues as error:
        return [str(error)]
    found = installation.problems(
        chart.objects(texts),
        versions,
        existing=case.existing,
        labels=case.values.get("commonLabels", {}),
        has_roles=case.values.get("rbac", {}).get("create", True),
    )
    return found + ["two renders differ"] * (texts != again)


def check_refusal(refusal: Refusal) -> list[str]:
    """Return the problem of the refusal of values: the values are accepted, or the message does not name the values."""
    try:
        chart.templates(refusal.values)
    except RefusedValues as error:
        return [f"the message does not say {word}: {error}" for word in refusal.words if word not in str(error)]
    return ["the values are accepted"]


def check_overlay(name: str, versions: list[str]) -> list[str]:
    """Return the problems of the objects of an overlay."""
    try:
        documents = chart.kustomize(chart.OVERLAYS / name)
    except RefusedValues as error:
        return [str(error)]
    return installation.problems(documents, versions)


def check_releases() -> list[str]:
    """Return the output of the tests of releases on a real API server, if one of the tests fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", RELEASES]
    done = subprocess.run(command, cwd=chart.ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return [] if done.returncode == 0 else lines or [done.stdout[-500:] + done.stderr[-500:]]


def run() -> Iterator[CheckResult]:
    """Yield the result of each check."""
    every, newest = schemas.versions(), schemas.versions()[-1:]
    yield _result("generated files", "equal their sources", check_files)
    yield _result("helm lint --strict", "defaults", chart.lint)
    yield _result("helm lint --strict", "everything", lambda: chart.lint(matrix.EVERYTHING))
    for name, case in matrix.CASES.items():
        versions = every if name in ("defaults", "everything") else newest
        yield _result(f"render: {name}", f"Kubernetes {_span(versions)}", partial(check_case, case, versions))
    for name, refusal in matrix.REFUSED.items():
        yield _result(f"refuse: {name}", "one message names it", partial(check_refusal, refusal))
    for folder in chart.overlays():
        subject = f"kustomize: {folder.name}"
        if chart.has_kubectl():
            yield _result(subject, f"Kubernetes {_span(every)}", partial(check_overlay, folder.name, every))
        else:
            yield CheckResult(subject, "kubectl is not on PATH", (), is_skipped=True)
    subject = "install, upgrade, rollback, adopt, uninstall"
    if os.environ.get("KUBEBUILDER_ASSETS"):
        yield _result(subject, "a real kube-apiserver", check_releases)
    else:
        yield CheckResult(subject, "KUBEBUILDER_ASSETS names no kube-apiserver", (), is_skipped=True)


def _result(subject: str, condition: str, check: Callable[[], list[str]]) -> CheckResult:
    return CheckResult(subject, condition, tuple(check()))


def _span(versions: list[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


@click.command()
def main() -> None:
    """Check the chart and the overlays."""
    results = list(run())
    rows = [(each.subject, each.condition, each.verdict) for each in results]
    click.echo(output.columns(("CHECK", "CONDITION", "RESULT"), rows))
    for each in results:
        for problem in each.problems:
            click.echo(f"{each.subject}: {problem}")
    failed = sum(bool(each.problems) for each in results)
    skipped = sum(each.is_skipped for each in results)
    click.echo(
        f"chart: {len(results) - failed - skipped} of {len(results)} checks hold, {failed} fail, {skipped} skipped"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
