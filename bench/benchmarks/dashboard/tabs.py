"""Tabs of a browser, as far as servers see them: a page, and the stream of its changes.

    tabs.py HOST:PORT PATH COUNT     reads streams until the process ends, and prints the bytes so far each second

One rule: a tab shows nothing at first, so its first message is the whole page.
"""

import asyncio
import http.client
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import orjson

from bench.benchmarks.dashboard.server import COOKIE, SECRET


@dataclass(slots=True)
class Browser:
    """A browser that has opened the dashboard."""

    server: str
    """Host and port."""
    cookie: str
    secret: str = field(default="", repr=False)

    def page(self, path: str) -> bytes:
        """Return a page or a file."""
        with closing(http.client.HTTPConnection(self.server, timeout=60)) as connection:
            connection.request("GET", path, headers={"Cookie": self.cookie})
            answer = connection.getresponse()
            text = answer.read()
        if answer.status != http.client.OK:
            raise OSError(f"{path}: {answer.status} {text[:200]!r}")
        return text

    def changes(self, path: str) -> Iterator[bytes]:
        """Yield the messages of the stream of a page, and empty ones for signs of life."""
        head, body = request(self, path)
        with closing(http.client.HTTPConnection(self.server, timeout=60)) as connection:
            connection.request("POST", "/stream", body, head)
            answer = connection.getresponse()
            while line := answer.readline():
                if line.startswith(b"data: "):
                    yield line[6:]
                elif line.startswith(b":"):
                    yield b""


def opened(address: str) -> Browser:
    """Return a browser that has opened the address which the command printed."""
    parts = urlsplit(address)
    with closing(http.client.HTTPConnection(parts.netloc, timeout=60)) as connection:
        connection.request("GET", f"{parts.path}?{parts.query}")
        cookie = connection.getresponse().headers["Set-Cookie"].partition(";")[0]
    browser = Browser(parts.netloc, cookie)
    found = re.search(rb'data-secret="([^"]*)"', browser.page("/"))
    browser.secret = found[1].decode() if found else ""
    return browser


def request(browser: Browser, path: str) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of the request for a stream."""
    head = {
        "Cookie": browser.cookie,
        "Origin": f"http://{browser.server}",
        "Content-Type": "application/json",
        "Torchq-Secret": browser.secret,
    }
    return head, orjson.dumps({"page": path, "shown": {}})


async def _read(server: str, path: str, count: int) -> None:
    """Read the streams of as many visitors of a made-up cluster."""
    received = 0

    async def one(number: int) -> None:
        nonlocal received
        head, body = request(Browser(server, f"{COOKIE}={number}", SECRET), path)
        lines = ["POST /stream HTTP/1.1", f"Host: {server}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in head.items()]
        reader, writer = await asyncio.open_connection(*server.split(":"))
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        while some := await reader.read(1 << 18):
            received += len(some)

    tabs = [asyncio.create_task(one(number)) for number in range(count)]
    while not any(tab.done() for tab in tabs):
        await asyncio.sleep(0.2)
        print(received, flush=True)
    raise SystemExit("a stream has ended")


if __name__ == "__main__":
    asyncio.run(_read(sys.argv[1], sys.argv[2], int(sys.argv[3])))
