"""Pages of lists are bounded in bytes and values; a page of one object is read with the limits of a watch event."""

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.benchmarks import worst
from coordinator.cache import views
from crds.api_resources import CONFIG_MAP_HEADS, CONFIG_MAPS, PODS, TORCHJOBS
from crds.torchjob.size_limits import LargeObject
from kube import client, jsontext, pages
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from tests.kube.test_informer_contract import pod
from tests.support.coordinator.desk import manifest
from tests.support.kube import scripted
from tests.support.kube.scripted import Answer, ReceivedRequest

MANY = 40
CROWDED = worst.text(worst.fitting(worst.JOBS["empty_lists"], worst.LARGEST))
NESTED = worst.text(worst.fitting(worst.JOBS["nested_beyond_reading"], worst.LARGEST))
LONG = worst.text(worst.fitting(worst.JOBS["a_long_string"], worst.LARGEST))
STRINGS = st.sampled_from(["", "x", '],"kind":"List","metadata":{"a":"b"}}', "]}", '{"items":[', "\\", 'é"'])
OBJECTS = st.dictionaries(
    st.sampled_from(["kind", "metadata", "items", "spec", '],"kind":"']),
    st.recursive(STRINGS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(STRINGS, inner, max_size=2)),
    min_size=1,
)


def page(*items: bytes, custom: bool, token: str = "") -> bytes:
    """Return a list as a Kubernetes API server writes it; the keys of a custom resource's list are sorted."""
    metadata = b'"metadata":' + orjson.dumps({"continue": token, "resourceVersion": "9", "remainingItemCount": 3})
    kinds = b'"kind":"TorchJobList"', b'"apiVersion":"v1"'
    held = b'"items":[' + b",".join(items) + b"]"
    parts = (kinds[1], held, kinds[0], metadata) if custom else (*kinds, metadata, held)
    return b"{" + b",".join(parts) + b"}\n"


@given(OBJECTS, st.booleans())
def test_page_of_any_single_object_is_read(item: dict[str, Any], custom: bool) -> None:
    text = page(orjson.dumps(item), custom=custom)
    assert pages._read_single(text) == pages.read(text, 1) == orjson.loads(text)


def test_collections_do_not_walk_through_a_page_while_it_is_read() -> None:
    text = page(*[b'{"metadata":{"labels":{"a":"b"}}}'] * 5000, custom=True)
    seen: list[str] = []

    def note(phase: str, _info: dict[str, int]) -> None:
        seen.append(phase)

    gc.collect()
    gc.callbacks.append(note)
    try:
        found = pages.read(text, 5000)
    finally:
        gc.callbacks.remove(note)
    assert (len(found["items"]), gc.isenabled()) == (5000, True)
    assert seen.count("start") <= 1  # the first object after the page may start a collection


@pytest.mark.parametrize("custom", [True, False])
def test_too_large_single_object_is_read_as_long(custom: bool) -> None:
    (found,) = pages.read(page(CROWDED, custom=custom), 1)["items"]
    assert isinstance(found, LargeObject)
    assert views.job_view(found).invalid
    assert isinstance(pages.read(page(NESTED, custom=custom), 1)["items"][0], LargeObject)
    assert not isinstance(pages.read(page(b'{"metadata":{}}', custom=custom), 1)["items"][0], LargeObject)


@pytest.mark.parametrize("text", [b"[]", b'{"items":[]}', b'{"items":{}}', page(custom=True), page(custom=False), b"1"])
def test_text_other_than_a_page_of_one_object_is_read_unchanged(text: bytes) -> None:
    assert pages.read(text, 1) == orjson.loads(text)


@pytest.mark.parametrize("limit", [2, 500])
def test_page_with_too_many_values_or_bytes_is_not_read(limit: int) -> None:
    small = b'{"metadata":{}}'
    assert pages.read(page(small, small, custom=True), limit) is not None
    assert pages.read(page(CROWDED, CROWDED, custom=True), limit) is None
    assert pages.read(page(NESTED, small, custom=True), limit) is None
    assert pages.read(page(*[b'{"a":"%s"}' % (b"x" * 1_000_000)] * 9, custom=True), limit) is None
    with pytest.raises(orjson.JSONDecodeError):
        pages.read(b"{", limit)


@given(st.integers(1, 500), st.integers(0, 2 * pages.MOST_BYTES))
def test_page_limit_shrinks_to_one_and_grows_to_the_requested_size(limit: int, size: int) -> None:
    assert 1 <= pages.smaller_limit(limit) < max(2, limit)
    assert limit <= pages.next_limit(limit, size, 500) <= 500


class Large:
    """An API server with many copies of one object, each sent as its own chunk."""

    def __init__(self, item: bytes) -> None:
        self.item = item

    def __call__(self, asked: ReceivedRequest) -> Answer:
        first, limit = int(asked.query.get("continue", 0)), int(asked.query["limit"])
        after = min(MANY, first + limit)
        head, tail = page(b"@", custom=True, token=str(after) if after < MANY else "").split(b"@")
        items = [self.item, b","] * (after - first)
        return Answer(lines=[head, *items[:-1], tail])


@pytest.mark.parametrize("item", [CROWDED, NESTED, LONG], ids=["crowded", "nested", "long"])
@pytest.mark.servers
def test_list_of_the_largest_objects_needs_the_memory_of_a_few(item: bytes, tmp_path: Path) -> None:
    with scripted.running() as server:
        server.otherwise = Large(item)
        connected = client.connect(ConnectionSettings(kubeconfig=str(scripted.kubeconfig(tmp_path, server.url))))
        found = 0
        tracemalloc.start()
        for each in connected.pages(TORCHJOBS):
            found += len([views.job_view(one) for one in each.items])
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        connected.close()
    assert found == MANY
    assert most < 8 * pages.MOST_BYTES


def test_only_the_long_object_of_a_list_is_marked_as_long(cluster: KubernetesCluster, namespace: str) -> None:
    large = manifest("large", "a")
    template = large["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]
    template["containers"][0]["args"] = ["x" * jsontext.LONG]
    cluster.create(TORCHJOBS, large, namespace)
    cluster.create(TORCHJOBS, manifest("small", "a"), namespace)
    long_pod = pod("large", "x")
    long_pod["metadata"]["annotations"] = {"a": "x" * jsontext.LONG}
    cluster.create(PODS, long_pod, namespace)
    cluster.create(PODS, pod("small", "x"), namespace)
    paged = KubernetesCluster(cluster._transport, ConnectionSettings(page_size=1))
    for resource in (TORCHJOBS, PODS):
        found = {each["metadata"]["name"]: each for page in paged.pages(resource, namespace) for each in page.items}
        assert {name: isinstance(each, LargeObject) for name, each in found.items()} == {"large": True, "small": False}


def test_list_of_heads_has_the_metadata_alone(cluster: KubernetesCluster, namespace: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "code", "labels": {"a": "b"}},
        "data": {"x": "y"},
    }
    cluster.create(CONFIG_MAPS, body, namespace)
    ((found,),) = (page.items for page in cluster.pages(CONFIG_MAP_HEADS, namespace, label_selector="a"))
    assert (found["metadata"]["name"], found["metadata"]["labels"], "data" in found) == ("code", {"a": "b"}, False)
