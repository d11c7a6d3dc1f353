"""A `torchq rpc` that a test controls by a plan: it answers wrongly, slowly or not at all.

One rule: the program uses only the standard library, since it runs by itself. FAKE_RPC_PLAN has the plan, FAKE_RPC_LOG
names the file for the messages that the program got.

A plan has `hello`, the parameters of the first line or any other text, and `calls`: for each method, a list with its
behaviour in the first process, in the second process, and so on. The last behaviour holds for all later processes. A
behaviour is a message without its id, `die`, `hang`, or {"items": N}, which sends N items, no further ahead than the
client allows, and then hangs.
"""

import json
import os
import signal
import sys
from typing import Any

WINDOW = 256


def main() -> None:
    plan = json.loads(os.environ["FAKE_RPC_PLAN"])
    path = os.environ["FAKE_RPC_LOG"]
    with open(path, "a+") as log:
        log.seek(0)
        starts = sum(1 for line in log if '"start"' in line)
        note(log, {"start": os.getpid(), "arguments": sys.argv[1:], "safe": os.environ.get("PYTHONPATH")})
        hello = plan.get("hello", {"version": "0.1.0", "protocol": 1})
        if hello is None:
            sys.exit("the fake program has no hello")
        say({"method": "hello", "params": hello} if isinstance(hello, dict) else hello)
        streams: dict[Any, list[int]] = {}
        for line in sys.stdin:
            message = json.loads(line)
            note(log, message)
            if "id" in message:
                behaviours = plan["calls"][message["method"]]
                answer(message["id"], behaviours[min(starts, len(behaviours) - 1)], streams)
            elif message["method"] == "more":
                allow(message["params"]["id"], message["params"]["count"], streams)


def answer(number: Any, behaviour: Any, streams: dict[Any, list[int]]) -> None:
    if behaviour == "die":
        print("the fake program dies", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    elif isinstance(behaviour, dict) and "items" in behaviour:
        streams[number] = [0, behaviour["items"]]
        allow(number, WINDOW, streams)
    elif behaviour != "hang":
        say({"id": number, **behaviour})


def allow(number: Any, count: int, streams: dict[Any, list[int]]) -> None:
    """Send the next items of a stream, at most `count`."""
    sent, most = streams[number]
    until = min(sent + count, most)
    for each in range(sent, until):
        say({"method": "item", "params": {"id": number, "value": {"pod": "p", "text": str(each)}}})
    streams[number][0] = until


def say(message: Any) -> None:
    print(json.dumps(message) if isinstance(message, dict) else message, flush=True)


def note(log: Any, message: Any) -> None:
    log.write(json.dumps(message) + "\n")
    log.flush()


if __name__ == "__main__":
    main()
