"""A bare server that sends messages of a size to all who connect, each second: what streams are compared with.

    bare_stream.py BYTES

One rule: asyncio alone, and one write for each message.
"""

import asyncio
import contextlib
import sys

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


async def _serve(size: int) -> None:
    message = b"data: " + b"x" * (size - 8) + b"\n\n"
    writers = set[asyncio.StreamWriter]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_HEAD)
            writers.add(writer)
            await reader.read()
        writers.discard(writer)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(f"ready at 127.0.0.1:{server.sockets[0].getsockname()[1]} .", flush=True)
    while True:
        await asyncio.sleep(1.0)
        for writer in list(writers):
            writer.write(message)
        for writer in list(writers):
            with contextlib.suppress(ConnectionError):
                await writer.drain()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
