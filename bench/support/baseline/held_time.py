"""Where the time goes for which jobs hold their quota, from the lines that torchq's processes log.

One rule: pure. The stages of a job follow one another without a gap: together they are the time from its pick until its
charge is freed. Processes of one machine share its clock, so their times can be compared here.
"""

import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple

from bench import report
from bench.report import Figures

STAGES = ("dispatch", "handover", "admission", "run", "notice", "reconcile", "release")
_TIME = r"(\d+\.\d+)"
_NAME = r"\s[^\s/]+/([^\s/]+)/[^\s/]+: "
_ADMITTED = re.compile(rf"{_NAME}picked {_TIME}, leased {_TIME}, begun {_TIME}, admitted {_TIME}$", re.MULTILINE)
_FREED = re.compile(rf"{_NAME}end seen {_TIME}, settled {_TIME}, charge freed {_TIME}$", re.MULTILINE)


class Moments(NamedTuple):
    """When the stages of a job began, and when the last one ended, in seconds since 1970."""

    picked: float
    leased: float
    begun: float
    admitted: float
    ended: float
    seen: float
    settled: float
    freed: float


def moments(workers: str, leader: str, ends: Mapping[str, float]) -> dict[str, Moments]:
    """Return the moments of each job by its name, from logs at the level debug and the time at which each job's end was
    written. A job that one of them does not have is left out. No moment is before the one that it follows."""
    admitted = {name: times for name, *times in _ADMITTED.findall(workers)}
    found = {}
    for name, *freed in _FREED.findall(leader):
        if name in admitted and name in ends:
            times = [*map(float, admitted[name]), ends[name], *map(float, freed)]
            found[name] = Moments(*itertools.accumulate(times, max))
    return found


def figures(jobs: Mapping[str, Moments], cpu: Mapping[str, int], charged: float) -> Figures:
    """Return the part of each stage in the time for which jobs held their cpu, and its duration over all jobs.

    `charged` are the cpu seconds that the store charged meanwhile, as somebody else has measured them.
    """
    spans = {name: [end - begin for begin, end in itertools.pairwise(job)] for name, job in jobs.items()}
    held = [sum(cpu[name] * span[at] for name, span in spans.items()) for at in range(len(STAGES))]
    percent = {stage: round(100 * part / sum(held), 2) for stage, part in zip(STAGES, held, strict=True) if sum(held)}
    times = {
        stage: report.milliseconds([span[at] for span in spans.values()])
        for at, stage in enumerate(STAGES)
        if len(spans)
    }
    return {
        "held_jobs": len(jobs),
        "held_percent": percent,
        "held_of_charged_percent": round(100 * sum(held) / charged, 1) if charged else None,
        "held_time": {
            stage: {"percent": percent[stage], "p50_ms": times[stage]["p50"], "p99_ms": times[stage]["p99"]}
            for stage in percent
        },
    }
