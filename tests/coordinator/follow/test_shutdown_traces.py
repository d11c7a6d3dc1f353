"""torchrun's traceback after a signal does not interest a user who follows a job; every other traceback does."""

from coordinator.follow.log_lines import LogLine
from coordinator.follow.readable_lines import BEGIN, END, ShutdownTraces

STOPPED = [BEGIN, '  File "run.py", line 1, in run', "    run(args)", f"{END}Process 3 got signal: 15"]
FAILED = [BEGIN, '  File "train.py", line 1, in <module>', "ValueError: the loss is NaN"]


def shown(*pieces: list[str]) -> list[str]:
    traces = ShutdownTraces()
    lines = [line for piece in pieces for line in traces.drop([LogLine("worker-0", text) for text in piece])]
    return [line.text for line in (*lines, *traces.rest())]


def test_only_the_traceback_of_a_signal_is_left_out_however_its_lines_arrive() -> None:
    lines = ["step 1", *FAILED, *STOPPED, "step 2", BEGIN, *STOPPED]
    expected = ["step 1", *FAILED, "step 2", BEGIN]
    assert shown(lines) == shown(*([line] for line in lines)) == expected


def test_a_traceback_without_its_end_is_shown() -> None:
    assert shown(STOPPED[:3]) == STOPPED[:3]
    endless = [BEGIN, *["  line"] * 1000]
    assert shown(endless) == endless
