"""The dashboard of one user, on the machine of the user.

One rule: the pages answer at a loopback address alone, and only to the browser that opens the printed address first.
"""

import asyncio
import contextlib
import html
import os
import signal
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from coordinator.access.readers import EVERYWHERE
from coordinator.cli import api_client
from coordinator.cli.history import sources
from coordinator.cli.session import Session
from coordinator.dashboard import server
from coordinator.dashboard.access.rights import ReviewPace, Rights
from coordinator.dashboard.readings import Readings
from coordinator.dashboard.server import Frame
from coordinator.dashboard.visitors import OneVisitor, Visitor
from coordinator.errors import CoordinatorError
from coordinator.follow.job_feed import JobFeeds
from coordinator.query.bounds import Bounds
from coordinator.runs import submitter
from crds.api_resources import NAMESPACES
from kube import client, errors
from kube.process import gc_tuning

ADDRESS = "127.0.0.1"
FIRST_PORT, TRIED_PORTS = 8470, 20


def show(session: Session, port: int | None, *, no_open: bool) -> None:
    """Show the pages until a stop signal. Raises CoordinatorError and ClusterError."""
    gc_tuning.reduce_collections()
    name = session.cluster_name
    namespace = "" if session.everywhere else session.namespace
    visitors = OneVisitor(_visitor(session, namespace))
    _note_missing(session, namespace)
    clock = session.cluster.server_time.now
    with (
        tempfile.TemporaryDirectory(prefix="torchq-") as folder,
        JobFeeds(session.cluster) as feeds,
        Readings(partial(feeds.of, namespace), partial(api_client.find, session), clock) as readings,
    ):

        def ready(bound: int) -> None:
            url = f"http://{ADDRESS}:{bound}/open?code={visitors.code}"
            asyncio.get_running_loop().run_in_executor(None, _tell, name, url, None if no_open else Path(folder))

        shown = f"{name}, namespace {namespace}" if namespace else name
        serve(Frame(shown, ADDRESS, visitors, readings, clock=clock), _ports(port), ready)
        session.cluster.close()


def _note_missing(session: Session, namespace: str) -> None:
    """Say so if there is no such namespace: it may come, so that is no error. Most users may not ask."""
    try:
        if namespace:
            session.cluster.get(NAMESPACES, namespace)
    except errors.NotFound:
        click.echo(f"note: there is no namespace {namespace}; until there is, the pages show no jobs", err=True)
    except errors.Forbidden:
        return


def _ports(port: int | None) -> list[int]:
    return [port] if port else [*range(FIRST_PORT, FIRST_PORT + TRIED_PORTS), 0]


def serve(frame: Frame, ports: list[int], ready: Callable[[int], None]) -> None:
    """Answer at the first port that is free, until a stop signal. Raises CoordinatorError if none is."""
    for port in ports:
        try:
            return asyncio.run(server.serve(frame, port, ready, until_signal))
        except OSError as error:
            if port == ports[-1]:
                reason = os.strerror(error.errno) if error.errno else str(error)
                raise CoordinatorError(f"port {port} cannot be used: {reason}; choose another --port") from error


async def until_signal() -> None:
    """Wait for a signal that ends the process."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores the end of the terminal
        loop.add_signal_handler(signal.SIGHUP, stopped.set)
    await stopped.wait()


def _tell(name: str, url: str, folder: Path | None) -> None:
    opened = folder is not None and _open_browser(url, folder)
    click.echo(f"dashboard of {name}: {url}{' (opened in the browser)' if opened else ''}")


def _open_browser(url: str, folder: Path) -> bool:
    """Open an address in the browser of the user, if there is one that needs no terminal."""
    if sys.platform.startswith("linux") and not {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & {*os.environ}:
        return False
    with contextlib.suppress(webbrowser.Error, OSError):
        browser = webbrowser.get()
        if type(browser) is webbrowser.GenericBrowser and "BROWSER" not in os.environ:
            return False  # one that takes the terminal
        # All users of the machine see the arguments of a browser, so these do not have the code.
        page = folder / "open.html"
        page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(url)}">\n')
        return browser.open(page.as_uri())
    return False


def _visitor(session: Session, namespace: str) -> Visitor:
    everything = Bounds(EVERYWHERE, lambda _: True, lambda _: True)
    return Visitor(
        name=submitter.find(session.cluster) or client.context_user(session.connection) or "you",
        cluster=session.cluster,
        queries=partial(api_client.find, session),
        history=partial(sources.find, session),
        bounds=lambda _: everything,
        known_bounds=lambda: everything,
        may_act=True,
        may=Rights(session.cluster, "", ReviewPace()).may,
        namespace=namespace,
        is_embedded=session.is_embedded,
    )
