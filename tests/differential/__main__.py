"""`python -m tests.differential --seed N --calls M`: the embedded API server against kube-apiserver.

One rule: the command needs KUBEBUILDER_ASSETS. The exit code is 1 if the answers of the two servers differ.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from crds import generate
from crds.api_resources import CRDS
from tests.differential import run
from tests.differential.run import Finding, Tally
from tests.support.kube import servers, widgets
from tests.support.kube.servers import Server


@contextlib.contextmanager
def both() -> Iterator[tuple[Server, Server]]:
    """Run an embedded server and a real server with the same definitions."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("embedded", "real"):
            (Path(folder) / name).mkdir()
        with servers.embedded(Path(folder) / "embedded") as embedded, servers.real(Path(folder) / "real") as real:
            for server in (embedded, real):
                install(server)
            yield embedded, real


def install(server: Server) -> None:
    """Create the custom resource definitions that the calls use, and wait until they are served."""
    for definition in (widgets.DEFINITION, *generate.load()):
        name = definition["metadata"]["name"]
        server.send("POST", CRDS.path(), definition)
        plural, _, group = name.partition(".")
        path = f"/apis/{group}/{definition['spec']['versions'][0]['name']}/{plural}"
        deadline = time.monotonic() + 60
        while server.send("GET", path)[0] != 200:
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} is not served")
            time.sleep(0.05)


def describe(finding: Finding) -> str:
    """Return a finding as readable text."""
    call = finding.call
    body = (call.body or "")[:600]
    told = "\n".join(f"    {difference}"[:700] for difference in finding.differences[:8])
    shown = "\n".join(
        f"  {who}: {reply.code} {reply.text[:500]}"
        for who, reply in zip(("embedded", "real"), finding.replies, strict=True)
    )
    head = f"episode {finding.episode}: {call.method} {call.path} {dict(call.headers) or ''}"
    return f"{head}\n  body: {body}\n{told}\n{shown}"


def report(tally: Tally, examples: int) -> str:
    """Return the kinds of differences, the most severe and frequent first, each with an example."""
    sorts = Counter(finding.sort() for finding in tally.findings)
    first = {finding.sort(): finding for finding in reversed(tally.findings)}
    order = sorted(sorts, key=lambda sort: (_LEVEL.get(sort.split(" ")[0], 9), -sorts[sort]))
    lines = [
        f"{sorts[sort]:5} {sort}" + ("\n" + describe(first[sort]) if index < examples else "")
        for index, sort in enumerate(order)
    ]
    lines.extend(f"not answered by the real server: {call}" for call in tally.hung_up)
    lines.append(
        f"{tally.calls} calls in {tally.episodes} episodes: "
        f"{len(tally.findings)} answered differently, {len(sorts)} kinds"
    )
    return "\n".join(lines)


_LEVEL = {"code": 0, "reason": 1, "object": 2, "events": 2, "details": 3, "causes": 4, "headers": 5, "message": 6}


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--episode", type=int, help="run this one only")
    parser.add_argument("--examples", type=int, default=1000, help="how many kinds of differences are shown in full")
    arguments = parser.parse_args()
    with both() as pair:
        tally = run.run(pair, arguments.seed, arguments.calls, arguments.episode)
    print(report(tally, arguments.examples))
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
