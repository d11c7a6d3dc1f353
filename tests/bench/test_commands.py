"""The benchmark of the command line: its figures, its jobs and its programs."""

from bench.benchmarks import commands
from bench.support.processes import ROOT
from crds.torchjob import torchjob


def test_a_command_is_compared_with_its_own_reference() -> None:
    version, status = [(0.02, 0.08), (0.04, 0.1), (0.03, 0.09)], [(0.03, 0.3), (0.02, 0.2), (0.09, 0.9)]
    found = commands.figures(version, status, listed=[(2.0, 5.0), (1.0, 4.0), (3.0, 6.0)])
    assert found == {
        "pass_s": 0.02,
        "api_list_s": 1.0,
        "version_s": 0.08,
        "status_s": 0.2,
        "job_list_s": 4.0,
        "version_over_pass": 4.0,
        "status_over_pass": 10.0,
        "job_list_over_api_list": 4.0,
    }


def test_programs_keep_their_bytecode_whatever_the_environment_says() -> None:
    found = commands.environment({"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/h"}, "/tmp/b")
    assert found == {"HOME": "/h", "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": "/tmp/b"}


def test_the_listed_jobs_are_valid() -> None:
    manifest = commands.job(7)
    manifest["metadata"] |= {"namespace": "a", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z"}
    manifest["metadata"]["resourceVersion"] = "1"
    assert sum(task.num_tasks for task in torchjob.parse(manifest).spec.tasks.values()) == 4
