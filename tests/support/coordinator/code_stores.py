"""The work of a pod with the code of its job, for tests without pods: mount the volumes and run the script."""

import base64
import os
import subprocess
import sys
from pathlib import Path

from coordinator.code import archive, unpack
from coordinator.code.archive import Archive, CodeFile
from coordinator.code.stores import Mounts
from crds.api_resources import CONFIG_MAPS
from kube.api import Cluster

UNPACK = Path(unpack.__file__).read_text()


def code(*contents: bytes, size: int = 0) -> Archive:
    """Return an archive of files with these contents, and of a file with `size` random bytes."""
    files = [CodeFile(f"{number}.py", content) for number, content in enumerate(contents)]
    return archive.build([*files, *([CodeFile("random", os.urandom(size))] if size else ())], 16 << 20)


def unpacked(cluster: Cluster, namespace: str, source: Mounts, digest: str, folder: Path) -> dict[str, bytes]:
    """Return the files that a pod with these mounts gets."""
    target = folder / "code"
    target.mkdir(parents=True)
    variables = {"TORCHQ_VOLUME_TORCHQ_CODE": str(target)}
    for mount in source:
        if "hostPath" in mount.volume:
            place = Path(mount.volume["hostPath"]["path"])
        else:
            place = folder / mount.name
            place.mkdir()
            found = cluster.get(CONFIG_MAPS, mount.volume["configMap"]["name"], namespace)
            for key, text in found["binaryData"].items():
                (place / key).write_bytes(base64.b64decode(text))
        variables["TORCHQ_VOLUME_" + mount.name.upper().replace("-", "_")] = str(place)
    done = subprocess.run(
        [sys.executable, "-I", "-c", UNPACK, digest],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done
    files = (path for path in target.rglob("*") if path.is_file() and path.name != unpack.MARK)
    return {path.relative_to(target).as_posix(): path.read_bytes() for path in files}
