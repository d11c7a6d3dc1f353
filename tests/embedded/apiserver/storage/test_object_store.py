"""The object store: batches of writes, failures of the disk, journals of changes."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from embedded.apiserver.status_errors import StatusError
from embedded.apiserver.storage.disk import Disk, DiskFailed, Row
from embedded.apiserver.storage.journal import Change, Journal
from embedded.apiserver.storage.object_store import Store


def _manifest(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": f"uid-{name}"}, **more}


class BrokenDisk(Disk):
    """A disk that can refuse changes."""

    broken = False

    def commit(self, rows: Iterable[Row], newest: int) -> None:
        if self.broken:
            raise DiskFailed("the disk is broken")
        super().commit(rows, newest)


def _none(resource: str) -> tuple[str, ...]:
    return ()


def test_failed_batch_leaves_no_trace_in_the_store(tmp_path: Path) -> None:
    async def story() -> None:
        disk = BrokenDisk(tmp_path / "objects.sqlite")
        store = Store(disk, _none)
        told: list[Change] = []
        store.journal("things").subscribe(told.append)
        store.put("things", _manifest("kept", size=1))
        store.put("things", _manifest("gone"))
        await store.durable()
        disk.broken = True
        store.put("things", _manifest("kept", size=2))
        kept = store.get("things", "n", "kept")
        assert kept
        store.put("things", {**kept.manifest(), "size": 3})
        gone = store.get("things", "n", "gone")
        assert gone
        store.remove("things", gone)
        store.put("things", _manifest("new"))
        with pytest.raises(DiskFailed):
            await store.durable()
        assert [(item.name, item.manifest().get("size")) for item in store.items("things")] == [
            ("gone", None),
            ("kept", 1),
        ]
        assert store.key_of("uid-new") is None
        assert len(told) == 2
        disk.broken = False
        after = store.put("things", _manifest("new"))
        await store.durable()
        assert told[-1].object is after
        disk.close()

    asyncio.run(story())


def test_changes_are_published_after_they_are_on_disk(tmp_path: Path) -> None:
    async def story() -> None:
        disk = Disk(tmp_path / "objects.sqlite")
        store = Store(disk, _none)
        told: list[Change] = []
        store.journal("things").subscribe(told.append)
        store.put("things", _manifest("a"))
        store.put("things", _manifest("b"))
        assert told == []
        assert store.published == 0
        await store.durable()
        assert [change.object.name for change in told] == ["a", "b"]
        assert store.published == store.revision == 2
        await store.durable()
        disk.close()

    asyncio.run(story())


def test_store_reads_its_objects_back_from_disk(tmp_path: Path) -> None:
    async def write() -> int:
        disk = Disk(tmp_path / "objects.sqlite")
        store = Store(disk, _none)
        owner = {"ownerReferences": [{"uid": "uid-a"}]}
        store.put("things", _manifest("a"))
        child = _manifest("b")
        child["metadata"].update(owner)
        store.put("things", child)
        last = store.put("things", _manifest("c"))
        store.remove("things", last)
        store.flush()
        disk.close()
        return store.revision

    revision = asyncio.run(write())
    disk = Disk(tmp_path / "objects.sqlite")
    store = Store(disk, _none)
    assert store.revision == revision == 4
    assert [item.name for item in store.items("things")] == ["a", "b"]
    assert [place.name for place in store.dependents("uid-a")] == ["b"]
    with pytest.raises(StatusError):
        store.journal("things").since(3, store.revision)
    assert store.journal("things").since(4, store.revision) == []
    disk.close()


def test_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "objects.sqlite"
    disk = Disk(path)
    disk._database.execute("PRAGMA user_version=99")
    disk.close()
    with pytest.raises(DiskFailed, match="newer version"):
        Disk(path)


def test_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "objects.sqlite"
    path.write_bytes(b"this is not a database, not at all, by no means" * 100)
    with pytest.raises(DiskFailed, match=r"objects\.sqlite"):
        Disk(path)


def test_journal_forgets_its_oldest_changes(tmp_path: Path) -> None:
    async def story() -> None:
        disk = Disk(tmp_path / "objects.sqlite")
        store = Store(disk, _none)
        journal = Journal(0, window=3)
        for name in "abcde":
            stored = store.put("things", _manifest(name))
            journal.publish(Change("ADDED", stored, None))
        store.flush()
        assert [change.object.name for change in journal.since(2, 5)] == ["c", "d", "e"]
        assert journal.since(5, 5) == []
        for version in (0, 1, 6):
            with pytest.raises(StatusError) as caught:
                journal.since(version, 5)
            assert caught.value.code == 410
        disk.close()

    asyncio.run(story())
