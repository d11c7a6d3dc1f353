"""The page docs/metrics.md, made from the list of all metrics.

One rule: the page says nothing that is not in the code. `python -m coordinator.metrics.document` writes it, and a test
compares it.
"""

from pathlib import Path

from coordinator.metrics.catalogue import GROUPS
from kube.process.meter import Metric

FILE = Path(__file__).parents[2] / "docs" / "metrics.md"
WHO = {
    "leader": "the coordinator that leads",
    "coordinator": "each coordinator",
    "worker": "the workers",
    "recorder": "each recorder",
    "dashboard": "each dashboard of a cluster",
    "queueing": "coordinators and workers",
    "each": "each process",
}
OPENING = """# Metrics

<!-- Written by `python -m coordinator.metrics.document` from the code (`make manifests`). Do not edit. -->

This page answers: which metrics are there, what do they count, and which process shows them? It is for admins.

Coordinators, workers, recorders and dashboards of a cluster show metrics in the text format of Prometheus at `/metrics`
of `metrics_port` ([probes.md](probes.md)). `torchq worker` has one page for all its processes; `torchq local` gives
each process a port, which asks for a token ([one-machine.md](one-machine.md#jobs-on-one-machine)); `torchq local status
-o json` lists them.

- **A fact counts once**, in the process that wrote it, after the API server has taken the write. A new leader, a
  restart or a repeated request counts nothing again. A worker process that dies lowers no counter of its supervisor;
  what it counted in its last quarter of a second may be missing.
- **Gauges of queues come from the leader alone** and end with its term. They are read once a second, and every five
  seconds while no page is asked for. Where that takes long they are read less often: readings take 0.8 % of a core at
  most, pages 2 %. A reader who asks sooner gets the last page.
- **Labels are closed sets.** No label names a namespace, a job, a pod or a message. The series of a queue go when the
  queue is deleted. The setting `metrics_queues` (1000) bounds the queues with series of their own; all others share the
  series with `queue=""`, whose amounts are sums, and `torchq_unnamed_queues` is their number. Cohorts that have only
  such queues share the series with `cohort=""`.
- **Units** are seconds, bytes and cores. Amounts of resources have the names of Kubernetes (`cpu`, `memory`,
  `nvidia.com/gpu`), and `jobs` for the number of jobs. Times in statuses are whole seconds, so histograms of jobs are
  right to one second.
"""


def text() -> str:
    """Return the page."""
    return OPENING + "".join(f"\n## {heading}\n\n{_table(metrics)}" for heading, metrics in GROUPS.items())


def _table(metrics: tuple[Metric, ...]) -> str:
    rows = ""
    for each in metrics:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        rows += f"| `{each.name}` | {each.kind} | {labels} | {WHO[each.of]} | {each.help} |\n"
    return "| metric | kind | labels | of | meaning |\n|---|---|---|---|---|\n" + rows


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
