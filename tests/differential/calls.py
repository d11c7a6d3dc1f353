"""The calls of an episode. The calls are drawn at random from a table of events.

One rule: the calls depend only on the seed and the table.
"""

from collections.abc import Callable, Iterator

from tests.differential import changes, creations, reads, subresources
from tests.differential.story import Story
from tests.differential.wire import Call

_TELLERS: dict[Callable[[Story], Iterator[Call]], int] = {
    creations.create: 6,
    creations.create_spoiled: 6,
    creations.create_odd: 6,
    creations.create_raw: 4,
    reads.read: 3,
    reads.listing: 6,
    reads.pages: 1,
    reads.strange_path: 3,
    reads.discover: 1,
    reads.stranger: 1,
    reads.accept: 1,
    reads.watch_oddly: 1,
    changes.put: 7,
    changes.patch: 10,
    subresources.scale: 3,
    subresources.bind: 2,
    subresources.evict: 1,
    subresources.delete: 5,
    subresources.delete_many: 1,
}


def calls(story: Story, count: int) -> Iterator[Call]:
    """Yield the calls that create the objects of a story, and then the calls of `count` random events."""
    for kind in dict.fromkeys(story.kinds):
        yield story.post("create", kind, story.body(kind, story.name(kind, 0)))
    for _ in range(count):
        teller = story.r.choices(list(_TELLERS), list(_TELLERS.values()))[0]
        yield from teller(story)
