"""The archive of an image: an OCI layout whose digests are right, the same each time."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from pathlib import Path

from release.image import _placed, layer, remove_old_schemas, write_archive


def test_an_archive_is_a_layout_with_right_digests_and_the_same_each_time(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/python3.11").write_text("program")
    (root / "usr/bin/python3").symlink_to("python3.11")
    (root / "bin").symlink_to("usr/bin")
    content = layer(root, 1_700_000_000)
    (root / "usr/bin/python3.11").touch()
    assert layer(root, 1_700_000_000) == content
    for name in ("one.tar", "two.tar"):
        write_archive(tmp_path / name, [content], "1.2", "amd64", 1_700_000_000)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as tar:
        files = {each.name: tar.extractfile(each).read() for each in tar}  # type: ignore[union-attr]
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    for name, blob in files.items():
        if name.startswith("blobs/"):
            assert hashlib.sha256(blob).hexdigest() == name.rpartition("/")[2]

    def at(descriptor: dict[str, str]) -> bytes:
        return files[f"blobs/{descriptor['digest'].replace(':', '/')}"]

    (listed,) = json.loads(files["index.json"])["manifests"]
    assert listed["annotations"]["io.containerd.image.name"] == "docker.io/library/allot:1.2"
    manifest = json.loads(at(listed))
    config = json.loads(at(manifest["config"]))
    (packed,) = manifest["layers"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(gzip.decompress(at(packed))).hexdigest()}"]
    assert config["config"]["User"] == "65532:65532"


def test_what_debian_has_moved_is_where_it_is_today() -> None:
    assert _placed("./lib/x86_64-linux-gnu/libc.so.6") == "usr/lib/x86_64-linux-gnu/libc.so.6"
    assert _placed("./lib64/ld-linux-x86-64.so.2") == "usr/lib64/ld-linux-x86-64.so.2"
    assert _placed("./usr/bin/python3.11") == "usr/bin/python3.11"
    assert _placed("./") == ""


def test_only_the_newest_schemas_stay(tmp_path: Path) -> None:
    folder = tmp_path / "kubernetes_validate" / "kubernetes-json-schema"
    for name in ("v1.9.0-local", "v1.36.0-local", "v1.37.0-local", "v1.37.0-local-strict"):
        (folder / name).mkdir(parents=True)
    remove_old_schemas(tmp_path)
    assert [each.name for each in folder.iterdir()] == ["v1.37.0-local"]
