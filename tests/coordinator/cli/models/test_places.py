"""Where the files of a version are, and their deletion."""

import errno
import shutil
from pathlib import Path

import pytest

from coordinator.cli.models import places
from crds.model_version import ModelVersion


@pytest.mark.parametrize("path", ["team", "other/train/model", "team/linked", "team/way/model", "team/linked/model"])
def test_a_path_out_of_the_outputs_of_the_namespace_is_no_place(tmp_path: Path, path: str) -> None:
    own, other = (tmp_path / places.job_files.OUTPUTS / name for name in ("team", "other"))
    (own / "train").mkdir(parents=True)
    (other / "model").mkdir(parents=True)
    (own / "linked").symlink_to(own / "train")
    (own / "way").symlink_to(other)
    version = ModelVersion.model_validate({"metadata": {"name": "m", "namespace": "team"}, "spec": {"path": path}})

    with pytest.raises(places.NoPlace, match="is not among the outputs of team"):
        places.folder(version, tmp_path)


def test_folder_that_the_job_has_never_made_is_no_place(tmp_path: Path) -> None:
    version = ModelVersion.model_validate({"metadata": {"name": "m", "namespace": "a"}, "spec": {"path": "a/t/model"}})

    with pytest.raises(places.NoPlace, match="its job wrote none there"):
        places.place(version, tmp_path)
    (tmp_path / places.job_files.OUTPUTS / "a/t/model").mkdir(parents=True)
    assert places.place(version, tmp_path)["folder"].endswith("a/t/model")


def test_files_that_cannot_be_deleted_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rmtree(path: Path) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with pytest.raises(places.NotDeleted, match=f"some files stay in {tmp_path}.*Directory not empty"):
        places.remove(tmp_path)
    places.remove(tmp_path / "none")
