"""Helm's engine against an API server, in a separate process.

One rule: Helm stores facts of a cluster in the home folder, so each action has the home folder of its test. Helm owns
fields under the name of its program, so the process has this name.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python

from deploy.chart import CHART, ROOT
from tests.support.acceptance.stack import clean_environment
from tests.support.waiting import patient

SECONDS = 120.0


class HelmRefused(Exception):
    """Helm did not carry out an action."""


@dataclass(frozen=True)
class Helm:
    """Helm with a kubeconfig, for one release."""

    kubeconfig: Path
    home: Path
    release: str = "torchq"
    namespace: str = "torchq-system"

    def install(self, values: dict[str, Any] | None = None) -> Any:
        return self._act("install", str(CHART), self.release, values or {}, create_namespace=True)

    def upgrade(self, values: dict[str, Any] | None = None) -> Any:
        return self._act("upgrade", str(CHART), self.release, values or {})

    def rollback(self, revision: int) -> Any:
        return self._act("rollback", self.release, version=revision)

    def uninstall(self, *, anyway: bool = False) -> Any:
        """Remove the release. With `anyway`, a missing release is no error."""
        return self._act("uninstall", self.release, ignore_not_found=anyway)

    def _act(self, action: str, *arguments: Any, **options: Any) -> Any:
        config = {"kubeconfig_path": str(self.kubeconfig), "namespace": self.namespace}
        if action in ("install", "upgrade"):
            options["namespace"] = self.namespace
        body = {"config": config, "action": action, "arguments": arguments, "options": options}
        done = subprocess.run(
            ["helm", "-m", "tests.support.deploy.helm"],
            executable=sys.executable,
            input=json.dumps(body),
            env=clean_environment(HOME=str(self.home), PYTHONPATH=":".join([str(ROOT), *filter(None, sys.path)])),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=patient(SECONDS),
            check=False,
        )
        if done.returncode:
            raise HelmRefused(done.stderr)
        return json.loads(done.stdout)


def main() -> None:
    """Carry out the action on standard input, and print its result."""
    body = json.load(sys.stdin)
    with helm_python.Config(**body["config"]) as config:
        try:
            result = getattr(config, body["action"])(*body["arguments"], **body["options"])
        except helm_python.HelmError as error:
            sys.exit(str(error))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
