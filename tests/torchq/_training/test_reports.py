"""`report` in programs of users: the printed lines, and that no report disturbs the training."""

import json
from typing import Any

import pytest

from tests.support.training.program import marked, run
from tests.support.training.reporting_job import reporting_job
from tests.support.waiting import until
from torchq._training.marked_lines import REPORT

pytestmark = pytest.mark.servers


def printed(output: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in marked(output, REPORT)]


def test_every_report_is_printed_at_once_and_in_order() -> None:
    done = run("for step in range(200): report(step=step, loss=1 / (step + 1))\nprint('over')")
    assert (done.returncode, done.stderr) == (0, "")
    assert printed(done.stdout) == [{"step": step, "loss": 1 / (step + 1)} for step in range(200)]
    assert done.stdout.splitlines()[0] == 'torchq-report: {"step":0,"loss":1.0}'
    assert done.stdout.splitlines()[-1] == "over"


def test_a_flood_is_thinned_and_says_so_and_its_last_report_is_printed() -> None:
    done = run("for step in range(50_000): report(step=step)")
    assert (done.returncode, done.stderr) == (0, "")
    lines = printed(done.stdout)
    assert lines[-1]["step"] == 49_999
    assert 1000 < len(lines) < 50_000
    assert len(lines) + sum(line.get("left_out", 0) for line in lines) == 50_000


def test_a_report_is_printed_though_the_program_is_killed() -> None:
    done = run("import os\nreport(step=1)\nreport(step=2)\nos.kill(os.getpid(), 9)")
    assert (done.returncode, printed(done.stdout)) == (-9, [{"step": 1}, {"step": 2}])


def test_a_value_that_json_does_not_have_ends_nothing_and_is_said_once() -> None:
    done = run("""
import math
for step in range(3): report(step=step, loss=math.inf, norm=-math.inf)
report({"val/loss": math.nan}, step=3.0, time=2)
report(0.5)
report()
print("trained")
""")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "trained")
    assert printed(done.stdout) == [
        *({"step": step, "loss": "inf", "norm": "-inf"} for step in range(3)),
        {"val/loss": "NaN", "step": 3, "time_": 2},
    ]
    assert done.stderr.splitlines() == [
        "report: loss is inf, which JSON does not have: it goes as text (said once)",
        "report: norm is -inf, which JSON does not have: it goes as text (said once)",
        "report: val/loss is NaN, which JSON does not have: it goes as text (said once)",
        "report: the name time is taken by those who read reports: it goes as time_ (said once)",
        "report: has no number; give some, as in report(step=100, loss=0.3) (said once)",
    ]


def test_warnings_that_are_errors_end_no_training() -> None:
    code = """
import logging, warnings
warnings.simplefilter("error")
class Broken(logging.Handler):
    def emit(self, record): raise OSError
logging.getLogger("torchq").addHandler(Broken())
report(loss=float("nan"))
"""
    done = run(code)
    assert (done.returncode, printed(done.stdout)) == (0, [{"loss": "NaN"}])


def test_the_coordinator_gets_the_step_whatever_else_is_reported() -> None:
    with reporting_job() as place:
        code = """
nan = float("nan")
others = {"val/loss": nan, "9": 1, "many": [1, 2], "text": "x" * 99, "deep": {"a": nan}}
report({"step": 7.0, "loss": nan, "samples_per_second": -1, "checkpoint": 1.5, **others})
report(step=nan, loss=1)
"""
        done = run(code, place.variables)
        report = place.newest()
    assert done.returncode == 0
    assert report is not None
    assert (report.step, report.loss, report.samples_per_second, report.checkpoint) == (7, "NaN", "-1", None)
    assert report.gauges == {"val_loss": "NaN", "many": "[1,2]", "text": "x" * 32, "deep": '{"a":"NaN"}'}


def test_in_a_pod_reports_with_a_step_reach_the_coordinator() -> None:
    code = """
import time
assert report(accuracy=0.5) == 0
while report(step=1, loss=0.25) != 9: time.sleep(0.01)
"""
    with reporting_job() as place:
        place.save_request = 9
        done = run(code, {**place.variables, "LOCAL_RANK": "0"})
        report = until(place.newest)
    assert (done.returncode, done.stderr) == (0, "")
    assert (report.step, report.loss) == (1, 0.25)
    assert printed(done.stdout)[0] == {"accuracy": 0.5}


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise ValueError('no data')"])
def test_the_coordinator_has_the_last_report_when_the_program_has_ended(end: str) -> None:
    with reporting_job() as place:
        run(f"for step in range(3): report(step=step)\n{end}", place.variables)
        report = place.newest()
    assert report is not None
    assert report.step == 2


def test_only_the_first_process_of_a_pod_sends() -> None:
    with reporting_job() as place:
        code = "import threading; report(step=1); assert len(threading.enumerate()) == 1"
        done = run(code, {**place.variables, "LOCAL_RANK": "1"})
        assert (done.returncode, done.stderr) == (0, "")
        assert place.newest() is None


def test_a_report_costs_no_time_while_the_coordinator_hangs_and_the_program_ends() -> None:
    code = """
import socket, os
server = socket.create_server(("127.0.0.1", 0))
os.environ["TORCHQ_REPORT_URL"] = f"http://127.0.0.1:{server.getsockname()[1]}"
report(step=0)
connection, _ = server.accept()
for step in range(1, 20_000): report(step=step)
"""
    variables = {"TORCHQ_REPORT_URL": "x", "TORCHQ_REPORT_TOKEN": "x", "TORCHQ_JOB": "a/b", "TORCHQ_POD": "p"}
    done = run(code, variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert printed(done.stdout)[-1]["step"] == 19_999


def test_a_child_of_a_fork_reports_for_itself() -> None:
    code = """
import os, threading, warnings
warnings.simplefilter("ignore")  # Python warns of a fork among threads
stop, going = threading.Event(), threading.Event()
def work():
    while not stop.is_set():
        report(step=1); going.set()
thread = threading.Thread(target=work); thread.start(); going.wait()
for number in range(20):
    child = os.fork()
    if child == 0:
        report(child=number); report(child=number + 100); os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set(); thread.join()
"""
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "")
    children = [line["child"] for line in printed(done.stdout) if "child" in line]
    assert children == [number + each for number in range(20) for each in (0, 100)]


def test_output_that_is_closed_or_broken_ends_no_training() -> None:
    code = """
import os, sys
reading, writing = os.pipe(); os.close(reading)
sys.stdout = open(writing, "w")
report(step=1); result(accuracy=1)
sys.stdout = None
report(loss=1); result(accuracy=1)
sys.stdout = open(os.devnull, "w"); sys.stdout.close()
report(other=1); result(accuracy=1)
sys.stderr.write("over")
"""
    done = run(code)
    assert done.stderr.startswith("over")
