"""A `helm` for the commands of docs/operators.md: Helm's engine with the options that the page uses.

One rule: the values that a user has set are in the home folder here. The command `helm` finds them in the release.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import helm_python

from deploy.chart import CHART, ROOT
from tests.support.deploy.helm import Helm, HelmRefused


def main() -> None:
    """Carry out one command, with the kubeconfig and the home folder of the environment."""
    parser = argparse.ArgumentParser(prog="helm")
    parser.add_argument("action", choices=("install", "upgrade", "uninstall"))
    parser.add_argument("release")
    parser.add_argument("chart", nargs="?")
    parser.add_argument("-n", dest="namespace", required=True)
    parser.add_argument("--create-namespace", action="store_true")
    parser.add_argument("--set", dest="assignments", action="append", default=[])
    # The page does not use --reuse-values: a newer chart would lack the values that are new.
    parser.add_argument("--reset-then-reuse-values", action="store_true")
    asked = parser.parse_args()
    assert asked.chart is None or (ROOT / asked.chart).samefile(CHART)
    home = Path(os.environ["HOME"])
    helm = Helm(Path(os.environ["KUBECONFIG"]), home, asked.release, asked.namespace)
    note = home / f"{asked.namespace}.{asked.release}.values"
    values: dict[str, Any] = {}
    if asked.reset_then_reuse_values:
        values = json.loads(note.read_text())
    for each in asked.assignments:
        values = _merged(values, helm_python.parse_set_string(each))
    try:
        if asked.action == "uninstall":
            helm.uninstall()
        else:
            getattr(helm, asked.action)(values)
            note.write_text(json.dumps(values))
    except HelmRefused as error:
        sys.exit(f"Error: {error}")


def _merged(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    both = {key: _merged(values[key], more[key]) for key in values.keys() & more.keys() if isinstance(more[key], dict)}
    return {**values, **more, **both}


if __name__ == "__main__":
    main()
