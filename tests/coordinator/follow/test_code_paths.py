"""Tracebacks name the files of the user, wherever a pod has unpacked them."""

import pytest

from coordinator.follow.log_lines import LogLine
from coordinator.follow.readable_lines import CodePaths

NODE = "/home/me/.local/state/torchq/pods/86bf/volumes/torchq-code/"
KUBERNETES = "/torchq/code/"


@pytest.mark.parametrize("folder", [NODE, KUBERNETES])
def test_lines_of_tracebacks_lose_the_folder_and_a_note_has_it_once(folder: str) -> None:
    raw = [f'  File "{folder}lib/a.py", line 3, in f', f'  File "{folder}train.py", line 4, in <module>']
    found = [*CodePaths().shorten(LogLine("worker-0", text) for text in raw)]
    assert [(line.pod, line.text) for line in found] == [
        ("", f"worker-0: files named without a folder are in {folder}"),
        ("worker-0", '  File "lib/a.py", line 3, in f'),
        ("worker-0", '  File "train.py", line 4, in <module>'),
    ]


def test_every_other_line_stays_as_it_is() -> None:
    texts = [
        f"wrote {NODE}weights.pt",
        '  File "/usr/lib/python3.11/runpy.py", line 3, in f',
        f'see File "{KUBERNETES}a.py"',
        "",
    ]
    lines = [LogLine("worker-0", text) for text in texts]
    assert [*CodePaths().shorten(lines)] == lines
