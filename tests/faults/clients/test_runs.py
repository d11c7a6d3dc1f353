"""`torchq run` under faults: whatever happens at any call, no object is orphaned and no run is half submitted."""

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.code import config_maps, pack
from coordinator.runs import request, run
from coordinator.runs.run import PreparedRun
from tests.faults.api import Api, ApiClient
from tests.faults.clients import scenes
from tests.faults.clients.client import KINDS, Kind
from tests.faults.clients.code_observer import is_held
from tests.faults.clients.scenes import SCENES, Play, Scene, play


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreparedRun]:
    """Yield a run whose code has two parts; two jobs may share a copy."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("project")
        (folder / "train.py").write_text("print(1)")
        document = {"command": ["python", "train.py"], "folder": str(folder), "namespace": scenes.NAMESPACE}
        patch.setattr(pack, "client_files", list)  # without these files, there is less to compare
        cluster: Any = ApiClient(Api(lambda: 0.0))
        parsed = request.parse({**document, "image": "torch", "name": "train"})
        made = run.prepare(cluster, parsed, embedded=False, python_folder="", code_store="")
        assert made.archive is not None
        patch.setattr(config_maps, "PART_BYTES", len(made.archive.content) // 2 + 1)
        patch.setattr(config_maps, "MOST_OWNERS", 2)
        yield run.prepare(cluster, parsed, embedded=False, python_folder="", code_store="")


STRIDE = 7
"""The distance between the faults that are tried. The distance is a prime, so that each kind is tried at some calls."""


def places(scene: Scene, prepared: PreparedRun) -> Iterator[tuple[int, int]]:
    """Yield the number of each client and of each of its calls, and the numbers of two more calls, which a fault may
    cause.
    """
    for number, client in enumerate(play(scene, prepared).clients):
        yield from ((number, call) for call in range(1, len(client.calls) + 3))


def check(played: Play, seed: int, faults: object = None) -> None:
    told = [(client.calls, client.result, client.error) for client in played.clients]
    assert not played.wrong, (seed, faults, played.wrong, told)


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_without_faults_ends_well_in_any_order(name: str, prepared: PreparedRun) -> None:
    for seed in range(30):
        check(play(SCENES[name], prepared, seed), seed)


@pytest.mark.parametrize("name", SCENES)
def test_whatever_happens_at_whichever_call_nothing_is_orphaned_or_half(name: str, prepared: PreparedRun) -> None:
    scene = SCENES[name]
    # The calls of each place are tried in order, and in one random order.
    seeds = [(place, seed) for place in places(scene, prepared) for seed in (0, 31 * sum(place))]
    cases = [({place: kind}, seed) for place, seed in seeds for kind in KINDS]
    for faults, seed in cases[len(name) % STRIDE :: STRIDE]:
        check(play(scene, prepared, seed, faults), seed, faults)


@pytest.mark.parametrize("kind", ["kill<", "kill>"])
def test_a_client_that_is_killed_at_any_call_leaves_at_most_a_job_on_hold(kind: Kind, prepared: PreparedRun) -> None:
    scene = SCENES["the code is new"]
    calls = play(scene, prepared).clients[0].calls
    assert calls == [
        "create torchjobs (dry run)", "create pods (dry run)", "create selfsubjectreviews", "create torchjobs",
        "get configmaps", "create configmaps", "get configmaps", "create configmaps", "patch torchjobs",
    ]  # fmt: skip
    for call in range(1, len(calls) + 1):
        played = play(scene, prepared, 0, {(0, call): kind})
        check(played, 0, call)
        held = [is_held(job) for job in played.jobs()]
        begun = call > 4 or (call == 4 and kind == "kill>")
        assert held == [not (call == 9 and kind == "kill>")] * begun, call
