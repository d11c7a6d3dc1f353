"""`torchq dashboard`: the queues in a browser, with the rights of the user who runs it.

One rule: the pages answer at a loopback address alone, and only to the browser that opens the printed address first.
"""

import asyncio
import contextlib
import signal
import webbrowser
from collections.abc import Callable
from functools import partial

import click

from coordinator.access.readers import EVERYWHERE
from coordinator.cli import api_client
from coordinator.cli.session import Session, pass_session
from coordinator.dashboard import server
from coordinator.dashboard.readings import Readings
from coordinator.dashboard.server import Frame
from coordinator.dashboard.visitors import OneVisitor, Visitor
from coordinator.errors import CoordinatorError
from coordinator.follow.job_feed import JobFeed
from coordinator.query.bounds import Bounds
from kube import client

ADDRESS = "127.0.0.1"
FIRST_PORT, TRIED_PORTS = 8470, 20


@click.command()
@click.option(
    "--port", type=click.IntRange(1, 65_535), help=f"port of the pages (default: {FIRST_PORT}, else one that is free)"
)
@click.option("--no-open", is_flag=True, help="do not open a browser")
@click.option("-A", "--all-namespaces", is_flag=True, help="jobs of all namespaces")
@click.option("-n", "--namespace", help="namespace of the jobs")
@pass_session
def dashboard(session: Session, port: int | None, no_open: bool, all_namespaces: bool, namespace: str | None) -> None:
    """Show the queues in a browser, live. Your kubeconfig decides what the pages show. Ctrl-C ends it."""
    session = session.with_user_agent("torchq-dashboard").with_flags(namespace=namespace)
    session = session.with_all_namespaces() if all_namespaces else session
    visitors = OneVisitor(_visitor(session))
    name = session.cluster_name
    with (
        JobFeed(session.cluster, "" if all_namespaces else session.namespace) as feed,
        Readings(feed, partial(api_client.find, session)) as readings,
    ):
        frame = Frame(name, ADDRESS, visitors, readings)

        def ready(bound: int) -> None:
            url = f"http://{ADDRESS}:{bound}/open?code={visitors.code}"
            opened = not no_open and _open_browser(url)
            how = " (opened in the browser)" if opened else ""
            click.echo(f"dashboard of {name}: {url}{how}")

        ports = [port] if port else [*range(FIRST_PORT, FIRST_PORT + TRIED_PORTS), 0]
        _serve(frame, ports, ready)


def _serve(frame: Frame, ports: list[int], ready: Callable[[int], None]) -> None:
    for port in ports:
        try:
            return asyncio.run(server.serve(frame, port, ready, _until_signal))
        except OSError as error:
            if port == ports[-1]:
                raise CoordinatorError(
                    f"port {port} cannot be used: {error.strerror or error}; choose another --port"
                ) from error


async def _until_signal() -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()


def _open_browser(url: str) -> bool:
    with contextlib.suppress(webbrowser.Error):
        return webbrowser.open(url)
    return False


def _visitor(session: Session) -> Visitor:
    everything = Bounds(EVERYWHERE, lambda _: True, lambda _: True)
    return Visitor(
        name=client.context_user(session.connection) or "you",
        cluster=session.cluster,
        queries=partial(api_client.find, session),
        history=partial(api_client.recorder, session),
        bounds=lambda: everything,
        may_act=True,
    )
