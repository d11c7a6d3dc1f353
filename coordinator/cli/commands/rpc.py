"""`torchq rpc`: serves a Python program that has imported `torchq`.

One rule: standard output has the protocol and nothing else; the log and all other output go to standard error.
"""

import os
import sys

import click

from coordinator.cli import session as sessions
from coordinator.cli.rpc import command_output
from coordinator.cli.rpc.call_context import ClusterAccesses
from coordinator.cli.rpc.rpc_server import Server
from coordinator.cli.session import Session, pass_session


@click.command()
@pass_session
def rpc(session: Session) -> None:
    """Answer programs that `import torchq`.

    A program that imports `torchq` starts this command and speaks JSON-RPC with it, a JSON object a line, over standard
    input and output. The end of the input ends it.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("this command answers Python programs: use `import torchq` in one, see docs/python.md")
    requests, answers = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sessions.start_log(session.settings)
    with command_output.thread_streams(), os.fdopen(requests, "rb") as lines:
        Server(ClusterAccesses(session.with_user_agent("torchq-python")), lines, answers).run()
    # Threads of streams that wait for a server would delay the end.
    sys.stderr.flush()
    os._exit(0)
