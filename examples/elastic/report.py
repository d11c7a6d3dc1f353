"""Tell torchq how far the training is: `report(step, loss=0.5, samplesPerSecond=8.0, gauges={"lr": 0.1})` in each step.

It never raises and never waits: a thread sends the newest report now and then, and drops what it cannot send. Outside
of torchq, and in all processes of a pod but the first one, it does nothing.
"""

import contextlib
import json
import math
import os
import threading
import urllib.request
from typing import Any

SECONDS, SECONDS_WHILE_ASKED, _newest, _asked = 15.0, 5.5, dict[str, Any](), [0]
_new, _saved, _started = threading.Event(), threading.Event(), threading.Lock()


def report(step: int, **fields: Any) -> int:
    """Report a step. Return the number of torchq's newest request to save, or 0; if saved, give it as `checkpoint`."""
    if "TORCHQ_REPORT_TOKEN" in os.environ and os.environ.get("LOCAL_RANK", "0") == "0":
        is_answer = fields.get("checkpoint") == _asked[0] != _newest.get("checkpoint", 0)  # taken at once
        _newest.update(fields, step=step)
        _new.set()
        _saved.set() if is_answer else None
        if _started.acquire(blocking=False):
            with contextlib.suppress(RuntimeError):  # the process may have no more threads
                threading.Thread(target=_send_reports, name="report", daemon=True).start()
    return _asked[0]


def _send_reports() -> None:
    url = f"{os.environ['TORCHQ_REPORT_URL']}/v1/jobs/{os.environ['TORCHQ_JOB']}/report"
    headers = {"Authorization": f"Bearer {os.environ['TORCHQ_REPORT_TOKEN']}"}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while _new.wait():
        _new.clear()
        with contextlib.suppress(Exception):
            body = json.dumps({**_sendable({**_newest}), "pod": os.environ["TORCHQ_POD"]}).encode()
            with opener.open(urllib.request.Request(url, body, headers), timeout=10) as answer:
                _asked[0] = max(_asked[0], json.load(answer).get("checkpoint", 0))
        _saved.wait(SECONDS_WHILE_ASKED if _asked[0] > (_newest.get("checkpoint") or 0) else SECONDS)
        _saved.clear()


def _sendable(value: Any) -> Any:  # JSON has no NaN, so a loss of NaN goes as text
    with contextlib.suppress(TypeError, ValueError):
        if isinstance(value, dict):
            return {str(name): _sendable(each) for name, each in value.items()}
        return value if isinstance(value, int) else float(value) if math.isfinite(value) else f"{value}"
