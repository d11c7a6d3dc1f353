"""The end of a stack. Coordinator and workers end first, so that no pod is created or replaced. The node is next: it
ends the pods and waits for their grace periods. The parts that the node needs end last.

One rule: only the signal HURRY shortens the grace period of a pod. A node that dies in the meantime is started again to
continue.
"""

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from coordinator.local import remaining_pods
from coordinator.local.supervisor import Command, Supervisor
from kube.stop import HURRY, PatientStop

NODE_NAME = "node"
CLUSTER, DATA, NODE, TORCHQ = range(4)
"""Stages. They end from the last to the first, so that each part ends while the parts that it needs still answer."""
_LOOK_SECONDS = 0.05
_MOST_DEATHS = 8
"""The number of deaths in a row after which a node that ends pods is given up: after about 25 s."""
Say = Callable[[str], None]


def end(supervisor: Supervisor, stop: PatientStop, data: Path, say: Say, hint: str) -> list[str]:
    """End all parts; return the names of the parts that had to be killed. `hint` is the command that kills the pods."""
    killed = supervisor.end(TORCHQ)
    if supervisor.has(NODE_NAME):
        killed += supervisor.end(NODE, signal.SIGINT) if stop.leaves else end_pods(supervisor, stop, data, say, hint)
    return killed + supervisor.stop()


def end_pods(supervisor: Supervisor, stop: PatientStop, data: Path, say: Say, hint: str) -> list[str]:
    """Have the node end the pods and then itself; return its name if it could not.

    `say` gets the number of pods that still end when this number changes, and again at another stop signal.
    """
    command = supervisor.command(NODE_NAME)
    if not command.once:
        command = shutting_down(command)
        supervisor.replace(command)
        supervisor.send(NODE_NAME, signal.SIGTERM)
    hurried, count, repeated = False, 0, 0
    while supervisor.has(NODE_NAME) and supervisor.deaths(NODE_NAME) < _MOST_DEATHS:
        if stop.hurried and not hurried:
            hurried = True
            supervisor.replace(replace(command, arguments=[*command.arguments, "--now"]))
            supervisor.send(NODE_NAME, HURRY)
        pods = remaining_pods.ending(data) or ()
        if pods and (len(pods), stop.repeated) != (count, repeated):
            say(f"{remaining_pods.format_progress(pods, time.time())}; `{hint}` kills them at once")
        count, repeated = len(pods), stop.repeated
        supervisor.step()
        time.sleep(_LOOK_SECONDS)
    if not supervisor.has(NODE_NAME):
        return []
    say("the node could not end the pods; see logs/node.log in the data folder")
    return [NODE_NAME, *supervisor.end(NODE, signal.SIGINT)]


def shutting_down(node: Command) -> Command:
    """Return the command of a node that ends the running pods and then itself."""
    return replace(node, arguments=[*node.arguments, "--shut-down"], once=True)
