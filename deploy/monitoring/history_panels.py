"""The panels of torchq's Grafana dashboard about the history of jobs.

One rule: that of `panels.py`.
"""

from deploy.monitoring.queries import RATE, Panel, T, of_each

HISTORY = (
    Panel(
        title="How far the history is behind",
        text="The age of the newest time up to which everything is recorded.",
        queries=of_each("torchq_history_behind_seconds"),
        unit="s",
    ),
    Panel(
        title="Rows of the history",
        text="Added or changed in a second.",
        queries=((f"sum(rate(torchq_history_rows_total{{{T}}}{RATE}))", "rows"),),
        unit="ops",
    ),
    Panel(
        title="Database of the history",
        text="1: the database answers this recorder and takes its rows.",
        queries=of_each("torchq_history_database_up"),
    ),
)
