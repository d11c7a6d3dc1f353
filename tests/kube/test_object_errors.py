"""Unforeseen errors: a loop skips the object that caused the error, and a failed thread ends its process."""

import logging
import subprocess
import sys

import pytest

from kube.object_errors import REMEMBERED, ObjectErrors
from kube.process import threads


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "kube.object_errors"]


def test_object_error_is_logged_once_and_shown_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = ObjectErrors()
    for number in range(100):
        errors.record("Pod a/b", ValueError(f"at {number}"))
    errors.record("Pod a/c", OSError("disk full"))
    assert lines(caplog) == [
        "Pod a/b is skipped after an unforeseen error: ValueError: at 0",
        "Pod a/c is skipped after an unforeseen error: OSError: disk full",
    ]
    assert (errors.objects, errors.times) == (2, 101)
    assert errors.summary == "Pod a/b (ValueError: at 99); Pod a/c (OSError: disk full)"
    errors.clear("Pod a/b")
    errors.clear("Pod a/c")
    errors.clear("Pod a/c")
    assert (errors.objects, errors.times, errors.summary) == (0, 101, "")


def test_object_error_of_another_type_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    errors = ObjectErrors()
    for error in (ValueError("1"), TypeError("2"), TypeError("3")):
        errors.record("Pod a/b", error)
    assert len(lines(caplog)) == 2


def test_errors_of_many_objects_are_bounded_in_memory_and_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    errors = ObjectErrors()
    for number in range(REMEMBERED + 500):
        errors.record(f"Pod a/{number:04}", ValueError("x" * 10_000))
    assert (errors.objects, errors.times, len(lines(caplog))) == (REMEMBERED, REMEMBERED + 500, REMEMBERED)
    assert len(errors.summary) < 1000
    assert errors.summary.endswith("; 997 more")


def test_only_errors_about_the_object_end_a_block_quietly() -> None:
    errors = ObjectErrors()
    with errors.skipping("Pod a/b", leaving=(KeyError,)):
        raise ValueError("1")
    with pytest.raises(KeyError), errors.skipping("Pod a/b", leaving=(KeyError,)):
        raise KeyError("2")
    assert errors.summary == "Pod a/b (ValueError: 1)"
    with errors.skipping("Pod a/b"):
        pass
    assert errors.summary == ""


PROGRAM = """
import logging, threading, time
from kube.process import threads

logging.basicConfig(format="%(levelname)s %(message)s")
threads.exit_on_thread_failure()
threading.Thread(target=lambda: [][1], name="worker").start()
time.sleep(600)
"""


@pytest.mark.servers
def test_failed_thread_ends_the_process_and_logs_the_reason() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == threads.EXIT_CODE
    assert "CRITICAL thread worker failed: the process ends, and its supervisor restarts it" in ended.stderr
    assert "IndexError" in ended.stderr
