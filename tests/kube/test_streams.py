"""The end of a stream that one thread reads while another thread closes the stream."""

import io
from collections.abc import Iterator

import pytest
import urllib3

from kube.streams import Stream


def test_stream_closed_during_a_read_closes_its_connection_after_the_read() -> None:
    response = urllib3.HTTPResponse(io.BytesIO(b"never read"), preload_content=False)

    def values() -> Iterator[int]:
        stream.close()  # a read is in progress, so close() leaves the connection to the reader
        assert not response.closed
        yield 1

    stream = Stream(response, values())
    assert next(stream) == 1
    assert response.closed
    with pytest.raises(StopIteration):
        next(stream)
