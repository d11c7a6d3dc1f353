"""Who closes a stream's connection when its reader and its closer meet."""

import io
from collections.abc import Iterator

import pytest
import urllib3

from kube.streams import Stream


def test_a_stream_closed_while_a_value_is_on_its_way_is_closed_at_once() -> None:
    response = urllib3.HTTPResponse(io.BytesIO(b"never read"), preload_content=False)

    def values() -> Iterator[int]:
        stream.close()  # somebody is reading: it cannot close the connection itself
        assert not response.closed
        yield 1

    stream = Stream(response, values())
    assert next(stream) == 1
    assert response.closed
    with pytest.raises(StopIteration):
        next(stream)
