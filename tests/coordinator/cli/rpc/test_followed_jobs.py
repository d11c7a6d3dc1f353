"""Results of jobs that are too large for a status: they are read from where they are stored."""

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.cli.rpc import followed_jobs
from coordinator.cli.rpc.call_context import OpenCall
from coordinator.follow.endings import JobEnding
from crds.keys import JobKey
from kube.client import KubernetesCluster
from tests.coordinator.cli.rpc.test_output_files import Place
from torchq._training import large_results
from torchq._training.large_results import MOST_LOGGED, Reference


@pytest.fixture
def place(embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path) -> Place:
    return Place(embedded_cluster, namespace, tmp_path)


def read(place: Place, result: object) -> tuple[Any, str]:
    ending = JobEnding(JobKey(*place.handle.split("/")), "Succeeded", result=result)
    return followed_jobs.read_result(place.access, ending, OpenCall())


def keep(place: Place, value: object, folder: str = "") -> dict[str, Any]:
    return large_results.keep(json.dumps(value), {"TORCHQ_OUTPUT": folder}).document()


def test_a_large_result_is_read_from_the_outputs(place: Place) -> None:
    value = {"loss": [0.5] * 2000}
    assert read(place, keep(place, value, str(place.folder))) == (value, "")


@pytest.mark.parametrize("value", [None, 4, {"a": 1}, {large_results.KEY: 1}, {large_results.KEY: {}, "b": 1}])
def test_a_result_that_fits_is_the_result(place: Place, value: object) -> None:
    assert read(place, value) == (value, "")


def test_another_result_in_the_place_of_the_right_one_is_not_given(place: Place) -> None:
    reference = keep(place, ["x" * 4000], str(place.folder))
    keep(place, ["y" * 4000], str(place.folder))
    words = f"its result of 4,004 bytes, kept in the file torchq-result.json of the job's outputs ({place.folder}),"
    assert read(place, reference) == (None, f"{words} cannot be read from here")


def test_a_link_is_not_followed(place: Place, tmp_path: Path) -> None:
    reference = keep(place, ["x" * 4000], str(tmp_path / "elsewhere"))
    place.folder.mkdir(parents=True)
    (place.folder / large_results.FILE).symlink_to(tmp_path / "elsewhere" / large_results.FILE)
    assert read(place, reference)[0] is None


def test_a_result_that_went_nowhere_says_how_large_it_was(place: Place) -> None:
    found = read(place, keep(place, "x" * MOST_LOGGED))
    assert found == (
        None,
        "its result of 1,048,578 bytes, kept nowhere: it was too large for the log, and the job had no outputs",
    )


@pytest.mark.parametrize("file", ["../secret.json", ".hidden", "a/b"])
def test_a_reference_names_a_file_of_the_outputs_alone(place: Place, file: str) -> None:
    reference = Reference(1, "0" * 16, file).document()
    assert read(place, reference) == (reference, "")
