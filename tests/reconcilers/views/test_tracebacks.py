"""The exception that ended a program, read from the output of torchrun 2.13 and of other programs."""

from pathlib import Path

import pytest

from reconcilers.views import torchrun, tracebacks

LOGS = Path(__file__).parent / "torchrun_logs"
FRAMES = '  File "/app/train.py", line 7, in <module>\n    step(batch)\n    ^^^^^^^^^^^\n'
BEGIN = "Traceback (most recent call last):\n" + FRAMES
SHAPES = "ValueError: shapes do not match: 3 x 4 and 5 x 6"
LOST = "RuntimeError: [/gloo/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:14241. This is typically caused"


def ranks(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def failure(rank: int, code: int, number: int = 0) -> str:
    name = f" (SIG{-code})" if code < 0 else ""
    return (
        f"[{number}]:\n  time      : 2026-11-22_22:59:40\n  host      : localhost\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {900 + rank}){name}\n"
        "  error_file: <N/A>\n"
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
    )


def report(rank: int, code: int = 1, others: str = "  <NO_OTHER_FAILURES>\n") -> str:
    """Return the report that torchrun prints at its end: the process that failed first, and the others."""
    frame = '  File "/usr/lib/python3/site-packages/torch/distributed/run.py", line 1028, in main\n    run(args)\n'
    return (
        "W1122 22:59:40.174000 9862 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 9 closing\n"
        "E1122 22:59:40.176000 9862 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)\n"
        f"Traceback (most recent call last):\n{frame}"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n{others}{'-' * 60}\n"
        f"Root Cause (first observed failure):\n{failure(rank, code)}{'=' * 60}\n"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("before", SHAPES),
        ("after", SHAPES),
        ("chained", "RuntimeError: the data could not be loaded"),
        ("notes", "ValueError: shapes do not match: 3 x 4 5 x 6 in batch 7"),
        ("loader", "ValueError: bad image 0"),
        ("syntax", "SyntaxError: invalid syntax"),
        ("module", "ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("group", "ExceptionGroup: several (2 sub-exceptions) ValueError: a TypeError: b"),
        (
            "cpp",
            "RuntimeError: inconsistent tensor size, expected tensor [3] and src [4] to have the same number of "
            "elements, but got 3 and 4 elements respectively",
        ),
        ("says", "no such config: small.yaml"),
    ],
)
def test_last_output_of_recorded_torchrun_log(name: str, expected: str) -> None:
    log = (LOGS / f"{name}.txt").read_text()
    assert torchrun.last_output(log) == torchrun.LastOutput(expected, lost_peer=False)
    kept = log.encode()[-2048:].decode(errors="replace")
    found = torchrun.last_output(kept)
    assert found.text == expected or found.more, "the message of a pod holds the end of the log; the log has the rest"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (f"{BEGIN}{SHAPES}\n", SHAPES),
        (f"step 3\n{BEGIN}{SHAPES}\nstep 4\n" + report(1, others=failure(0, -15)), SHAPES),
        (f"{BEGIN}RuntimeError: two\nlines of it\n" + report(0), "RuntimeError: two lines of it"),
        (f"{BEGIN}AssertionError\n", "AssertionError"),
        (f"{BEGIN}KeyboardInterrupt\n", "KeyboardInterrupt"),
        (f"{BEGIN}app.errors.NoLuck: none\n", "app.errors.NoLuck: none"),
        (f"{BEGIN}struct.error: unpack requires 4 bytes\n", "struct.error: unpack requires 4 bytes"),
        (
            f"{BEGIN}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total\n",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total",
        ),
        (f"\x1b[31m{BEGIN}\x1b[1;31mValueError\x1b[0m: red\x1b[0m\n", "ValueError: red"),
        (f"\r 10%|#    | 1/10\r 40%|##  | 4/10 [00:01]{BEGIN}{SHAPES}\n", SHAPES),
        (f"{BEGIN}ValueError: a\nException raised from f at x.cpp:3 (most recent call first):\nframe #0: g\n",
         "ValueError: a"),
        (f"{BEGIN}ValueError: a\n[rank0]:[W1122 22:59:49.2 ProcessGroupNCCL.cpp:1538] Warning: not destroyed\n",
         "ValueError: a"),
        (f"{BEGIN}KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n"
         f"{BEGIN}ValueError: b\n", "ValueError: b"),
        (f"{BEGIN}KeyError: 'handled'\nwent on\n{BEGIN}ValueError: b\n", "ValueError: b"),
        (FRAMES + "ValueError: its beginning is cut\n", "ValueError: its beginning is cut"),
        (f"{BEGIN}KeyError: 'a'\n" + "epoch\n" * 5 + report(0, -9), "traceback : To enable traceback see"),
        ("step 1\nno data\n", "no data"),
        ("", ""),
    ],
)  # fmt: skip
def test_last_output_of_printed_text(printed: str, expected: str) -> None:
    found = torchrun.last_output(printed).text
    assert found == expected or (expected.startswith("traceback") and found == "exitcode  : -9 (pid: 900) (SIG9)")


class TestWhoFailedFirst:
    """The exception that is reported for several processes of one pod."""

    def test_exception_of_rank_named_by_torchrun_is_returned(self) -> None:
        log = ranks(0, f"{BEGIN}KeyError: 'a'") + ranks(2, f"{BEGIN}{SHAPES}") + report(2, others=failure(0, 1, 1))
        assert torchrun.last_output(log).text == SHAPES

    def test_rank_that_lost_a_peer_is_skipped_though_torchrun_names_it(self) -> None:
        log = ranks(0, f"{BEGIN}{LOST}") + ranks(2, f"{BEGIN}{SHAPES}") + report(0, others=failure(2, 1, 1))
        assert torchrun.last_output(log) == torchrun.LastOutput(SHAPES, lost_peer=False)

    def test_rank_ended_by_torchrun_is_skipped(self) -> None:
        log = ranks(1, f"{BEGIN}{SHAPES}") + report(0, -15, others=failure(1, 1, 1))
        assert torchrun.last_output(log).text == SHAPES

    def test_interleaved_lines_of_named_ranks_are_separated(self) -> None:
        one, other = ranks(1, f"{BEGIN}{SHAPES}").splitlines(), ranks(0, f"{BEGIN}{LOST}").splitlines()
        mixed = "\n".join(line for pair in zip(one, other, strict=True) for line in pair) + "\n"
        assert torchrun.last_output(mixed + report(1, others=failure(0, 1, 1))).text == SHAPES

    def test_interleaved_lines_of_unnamed_processes_are_separated(self) -> None:
        lines = f"{BEGIN}{SHAPES}".splitlines()
        mixed = "\n".join(line for line in lines for _ in range(2)) + "\n"
        assert torchrun.last_output(mixed + report(1, others=failure(0, 1, 1))).text == SHAPES

    def test_lines_copied_by_torchrun_are_read(self) -> None:
        tee = "".join(f"[default1]:{line}\n" for line in ranks(1, f"{BEGIN}{SHAPES}").splitlines())
        other = "".join(f"[default0]:{line}\n" for line in f"{BEGIN}KeyError: 'handled'\nstep 2".splitlines())
        assert torchrun.last_output(tee + other + report(1, others=failure(0, -15, 1))).text == SHAPES

    def test_lost_peer_is_returned_if_all_ranks_lost_one(self) -> None:
        found = torchrun.last_output(ranks(0, f"{BEGIN}{LOST}") + ranks(1, f"{BEGIN}{LOST}") + report(0))
        assert (found.text, found.lost_peer) == (LOST, True)

    def test_handled_exception_before_lost_peer_is_ignored(self) -> None:
        found = torchrun.last_output(f"{BEGIN}KeyError: 'handled'\nwent on\n{BEGIN}{LOST}\n" + report(0))
        assert (found.text, found.lost_peer) == (LOST, True)

    def test_exception_chained_to_lost_peer_is_marked(self) -> None:
        chained = f"{BEGIN}{LOST}\n\nThe above exception was the direct cause of the following exception:\n\n{BEGIN}"
        found = torchrun.last_output(ranks(0, f"{chained}RuntimeError: no step") + report(0))
        assert (found.text, found.lost_peer) == ("RuntimeError: no step", True)

    def test_last_of_several_torchruns_decides(self) -> None:
        first = ranks(1, f"{BEGIN}KeyError: 'first'") + report(1, others=failure(0, -15, 1))
        last = ranks(0, f"{BEGIN}{SHAPES}") + report(0, others=failure(1, -15, 1))
        assert torchrun.last_output(first + "again\n" + last).text == SHAPES

    def test_crash_is_not_a_lost_peer(self) -> None:
        found = torchrun.last_output(ranks(0, f"{BEGIN}{LOST}") + report(1, -11, others=failure(0, 1, 1)))
        assert not found.lost_peer
        assert "Connection" not in found.text


def test_long_message_is_cut_between_words() -> None:
    (found,) = tracebacks.find_exceptions(f"{BEGIN}ValueError: " + "TORCHQ_VOLUME_DATA " * 5_000)
    assert len(found.text) <= tracebacks.LONGEST
    assert found.text.endswith(" TORCHQ_VOLUME_DATA ...")


def test_line_without_its_beginning_starts_with_ellipsis() -> None:
    assert torchrun.last_output("OLUME_DATA " * 200).text.startswith("... OLUME_DATA OLUME_DATA")


@pytest.mark.parametrize(
    "hostile",
    [
        "A" + "a" * 10**6,
        "a." * 500_000,
        '"' * 10**6,
        '\\"' * 500_000,
        "[rank1]:" * 100_000,
        "\x1b[" * 300_000,
        " " * 10**6,
        "-" * 10**6 + "x",
        "exitcode" + " " * 10**6,
        "Root Cause" * 100_000,
        "Traceback (most recent call last):\n" * 20_000,
    ],
)
def test_hostile_log_is_read_in_linear_time(hostile: str) -> None:
    """A search in quadratic time would take hours."""
    torchrun.last_output(f"{BEGIN}{hostile}\n{hostile}\n")
