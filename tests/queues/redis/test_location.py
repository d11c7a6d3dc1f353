"""The location of Redis: a file with its URL that changes, and that cannot be used for a while."""

import logging
from pathlib import Path

import pytest

from queues import errors
from queues.redis import connection
from queues.redis.location import Location
from tests.support import redis_server

pytestmark = pytest.mark.servers


def test_a_file_is_read_again_and_one_that_cannot_be_used_keeps_the_last_url(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "url"
    file.write_text("redis://u:first@host/1\n")
    location = Location("redis://u:first@host/1", str(file))
    file.write_text("redis://u:second@host/1\n")
    assert location.url() == "redis://u:second@host/1"
    assert not caplog.records
    for text in ("", "redis://u:thi", None):
        file.write_text(text) if text is not None else file.unlink()
        assert {location.url() for _ in range(3)} == {"redis://u:second@host/1"}
    file.write_text("redis://u:third@host/1")
    assert location.url() == "redis://u:third@host/1"
    lines = [record.getMessage() for record in caplog.records]
    assert [str(file) in line for line in lines] == [True] * 4, lines
    assert "it is empty" in lines[0]
    assert "its port" in lines[1]
    assert "No such file" in lines[2]
    assert "over after" in lines[3]
    assert not any(secret in line for secret in ("u:", "second", "third") for line in lines)


def test_a_rotated_password_is_used_from_the_next_connection_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "url"
    with redis_server.running(tmp_path / "socket") as url:
        admin = connection.connect(url, client_name="admin")
        client = connection.connect(Location("", str(file)), client_name="test")

        def kill(*rules: str) -> None:
            admin.execute_command("ACL", "SETUSER", "me", "on", "+@all", "~*", *rules)
            admin.client_kill_filter(user="me")

        def write(password: str) -> None:
            file.write_text(url.replace("unix://", f"unix://me:{password}@"))

        with pytest.raises(errors.StoreUnreachable, match=f"the URL in {file} .*No such file"):
            connection.incarnation(client)
        write("one")
        kill(">one")
        assert connection.incarnation(client)
        kill(">two")
        write("two")
        kill("<one")
        assert connection.incarnation(client)
        kill("resetpass", ">three")
        with pytest.raises(errors.CredentialsRefused):
            connection.incarnation(client)
        write("three")
        assert connection.incarnation(client)
        client.close()
        admin.close()
    assert not caplog.messages, "a raised error is not logged as well"
