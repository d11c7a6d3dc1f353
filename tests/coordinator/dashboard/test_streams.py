"""Streams of changes: what a page is told, how often, and what a slow reader or too many pages cost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from coordinator.access.readers import Reader
from coordinator.dashboard import streams
from coordinator.dashboard.elements import Drawn, Page
from coordinator.dashboard.made_pages import MadePage
from coordinator.dashboard.streams import ALIVE, END, FULL, StreamRequest, Streams, read_request
from coordinator.dashboard.visitors import Lookers, Visitor
from coordinator.query.bounds import Bounds
from kube import errors
from tests.coordinator.dashboard.access.test_logins import visitor
from tests.support.waiting import patient

NOTHING = StreamRequest("/", {})


class Readings:
    """Readings that come when a test says so."""

    on_reading: Callable[[], object] = staticmethod(lambda: None)


def made(*texts: str) -> MadePage:
    drawn = tuple(Drawn(f"e{number}", text, text) for number, text in enumerate(texts))
    return MadePage(Page("p", "P", {}), {"rows": drawn})


class Place:
    """Streams over pages that a test decides on."""

    def __init__(self) -> None:
        self.page: MadePage | Exception | None = made("one")
        self.makes = 0
        self.readings = Readings()
        self.bounds: Bounds | None = None
        """What all visitors are told, if they are told the same."""
        self.streams = Streams(self.readings, self.make, lambda visitor, _: self.bounds or visitor)  # type: ignore[arg-type]
        self.is_there = True

    async def make(self, lookers: Lookers, _address: str) -> MadePage | None:
        self.makes += 1
        assert self.bounds in (None, lookers)
        await asyncio.sleep(0)
        if isinstance(self.page, Exception):
            raise self.page
        return self.page

    def open(self, who: Visitor, asked: StreamRequest = NOTHING) -> "Tab":
        return Tab(self, who, asked)


class Tab:
    """One page that is open, with what it was sent."""

    def __init__(self, place: Place, who: Visitor, asked: StreamRequest) -> None:
        self.sent: asyncio.Queue[bytes] = asyncio.Queue()
        self.is_slow = False
        self.task = asyncio.create_task(place.streams.follow(who, asked, self, lambda: place.is_there))

    def is_free(self) -> bool:
        return not self.is_slow

    def send(self, text: bytes) -> None:
        self.sent.put_nowait(text)

    async def next(self) -> bytes:
        """Return the next message but signs of life."""
        while True:
            message = await asyncio.wait_for(self.sent.get(), patient(30))
            if message != ALIVE:
                return message

    async def changes(self) -> Any:
        message = await self.next()
        return [each.get("html") for each in orjson.loads(message.removeprefix(b"data: "))]


def run(test: Callable[[Place], Awaitable[None]]) -> None:
    async def whole() -> None:
        place = Place()
        place.streams.start()
        try:
            await asyncio.wait_for(test(place), patient(60))
        finally:
            await place.streams.stop()

    asyncio.run(whole())


def test_a_page_gets_what_differs_and_only_that() -> None:
    async def test(place: Place) -> None:
        tab = place.open(visitor("a", None), StreamRequest("/", {"rows": [("e0", "one")]}))
        place.page = made("one", "two")
        place.readings.on_reading()
        assert await tab.changes() == ["two"]
        place.page = made("one", "three")
        place.readings.on_reading()
        assert await tab.changes() == ["three"]

    run(test)


@pytest.mark.parametrize(("shown", "told"), [("old", [b"data: "]), ("one", [])])
def test_a_page_behind_a_proxy_that_holds_streams_back_gets_an_answer_that_ends(shown: str, told: list[bytes]) -> None:
    asked = read_request(orjson.dumps({"page": "/", "shown": {"rows": [["e0", shown]]}, "once": True}))

    async def test(place: Place) -> None:
        tab = place.open(visitor("a", None), asked)
        assert await tab.task
        assert [tab.sent.get_nowait()[: len(each)] for each in told] == told
        assert tab.sent.empty()

    run(test)


def test_a_page_that_is_shown_in_many_tabs_is_made_once_for_each_reading() -> None:
    async def test(place: Place) -> None:
        who = visitor("a", None)
        tabs = [place.open(who) for _ in range(20)]
        for tab in tabs:
            assert await tab.changes() == ["one"]
        first = place.makes
        place.page = made("two")
        place.readings.on_reading()
        for tab in tabs:
            assert await tab.changes() == ["two"]
        assert (first, place.makes) == (1, 2)

    run(test)


def test_a_page_of_many_visitors_who_are_told_the_same_is_made_once_while_one_of_them_looks() -> None:
    async def test(place: Place) -> None:
        place.bounds = Bounds(Reader(), lambda _: False, lambda _: False)
        tabs = [place.open(visitor(str(number), None)) for number in range(20)]
        for tab in tabs:
            assert await tab.changes() == ["one"]
        place.page = made("two")
        place.readings.on_reading()
        for tab in tabs:
            assert await tab.changes() == ["two"]
        assert place.makes == 2
        place.is_there = False
        while len(place.streams) or place.streams._making:
            place.readings.on_reading()
            await asyncio.sleep(0)
        assert place.makes == 3, "what nobody looks at is not made"

    run(test)


@pytest.mark.parametrize("gone", [None, errors.Unauthorized("revoked"), "logged out"])
def test_a_page_that_its_visitor_may_not_see_any_more_ends(gone: Any) -> None:
    async def test(place: Place) -> None:
        tab = place.open(visitor("a", None))
        await tab.next()
        if gone == "logged out":
            place.is_there = False
        else:
            place.page = gone
        place.readings.on_reading()
        assert await tab.next() == END
        assert await tab.task
        assert len(place.streams) == 0

    run(test)


def test_a_server_that_is_away_leaves_the_page_as_it_is() -> None:
    async def test(place: Place) -> None:
        tab = place.open(visitor("a", None))
        await tab.next()
        place.page = errors.Unreachable("away")
        place.readings.on_reading()
        while place.makes < 2:
            await asyncio.sleep(0)
        place.page = made("two")
        place.readings.on_reading()
        assert await tab.changes() == ["two"]

    run(test)


def test_too_many_pages_of_one_visitor_and_of_all_stay_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_OF_ONE_VISITOR", 2)
    monkeypatch.setattr(streams, "MOST_STREAMS", 3)

    async def test(place: Place) -> None:
        one, other = visitor("a", None), visitor("b", None)
        said = [await place.open(who).next() for who in (one, one, one, other, other)]
        assert [text == FULL for text in said] == [False, False, True, False, True]
        place.is_there = False
        place.readings.on_reading()
        while len(place.streams):
            await asyncio.sleep(0)
        place.is_there = True
        assert await place.open(one).next() != FULL
        assert len(place.streams._of_visitor) == 1, "visitors without streams are forgotten"

    run(test)


def test_a_slow_reader_gets_the_newest_only_and_a_slower_one_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(place: Place) -> None:
        who = visitor("a", None)
        tab, other = place.open(who), place.open(who)
        for each in (tab, other):
            assert await each.changes() == ["one"]
        tab.is_slow = True
        for number in range(5):
            place.page = made(f"page {number}")
            place.readings.on_reading()
            assert await other.changes() == [f"page {number}"]
        assert tab.sent.empty()
        tab.is_slow = False
        place.readings.on_reading()
        assert await tab.changes() == ["page 4"]
        monkeypatch.setattr(streams, "WRITE_SECONDS", 0.0)
        tab.is_slow = True
        place.readings.on_reading()
        assert not await tab.task, "the server then closes the connection"
        assert tab.sent.empty()
        assert not other.task.done()

    run(test)


def test_a_stream_without_changes_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(place: Place) -> None:
        tab = place.open(visitor("a", None), StreamRequest("/", {"rows": [("e0", "one")]}))
        for page in (place.page, errors.Unreachable("away")):
            monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", -1.0)
            place.page = page
            place.readings.on_reading()
            assert await asyncio.wait_for(tab.sent.get(), patient(30)) == ALIVE

    run(test)


def test_a_defect_of_one_page_ends_its_streams_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(place: Place) -> None:
        lookers = place.streams._lookers
        broken, other = visitor("broken", None), visitor("other", None)

        def look(who: Visitor, address: str) -> Lookers:
            if who is broken:
                raise RuntimeError("a defect")
            return lookers(who, address)

        tabs = [place.open(broken), place.open(other)]
        for tab in tabs:
            assert await tab.changes() == ["one"]
        monkeypatch.setattr(place.streams, "_lookers", look)
        place.page = made("two")
        place.readings.on_reading()
        with pytest.raises(RuntimeError, match="a defect"):
            await tabs[0].task
        assert await tabs[1].changes() == ["two"]

    run(test)


def test_all_streams_end_with_the_server() -> None:
    async def test(place: Place) -> None:
        tabs = [place.open(visitor("a", None)) for _ in range(3)]
        for tab in tabs:
            await tab.next()
        await place.streams.stop()
        assert [await tab.task for tab in tabs] == [True] * 3
        assert all(tab.sent.empty() for tab in tabs), "the pages come back to another process, and say nothing"

    run(test)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"page":"/"}', b'{"page":"/","shown":[]}', b'{"page":"/","shown":{"a":[1]}}',
     b'{"page":"/","shown":{"a":[["x"]]}}', b"\xff", b'{"page":"/","shown":{"a":' + b"[" * 2000 + b"]" * 2000 + b"}}",
     orjson.dumps({"page": "/", "shown": {"a": [["i", "v"]] * (streams.MOST_SHOWN + 1)}})],
)  # fmt: skip
def test_what_no_page_says_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="page"):
        read_request(body)
