"""`python -m release.image FOLDER`: the container image as an OCI archive, without a builder, a daemon or root.

The base layer is unpacked Debian packages: Python, the libraries it needs, time zones and certificates; no shell, no package manager, no compiler.
The layer above has allot and exactly the packages of its lock file. Files have the time of the last commit and are sorted, so that the
same packages give the same bytes. What is in it, and in which version, is in a bill of materials beside it.

Needs a Debian 12 whose package lists are up to date (`apt-get update`).
"""

from __future__ import annotations

import compileall
import gzip
import hashlib
import io
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from release.bill_of_materials import bill_of_materials, read_lock
from release.dist import LOCK, ROOT, project_version, source_date, write_checksums

DEBIAN = "12"
PYTHON = (3, 11)
PACKAGES = (
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libbz2-1.0", "liblzma5", "libexpat1", "libffi8", "libssl3"),
    *("libsqlite3-0", "libuuid1", "libcrypt1", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
    *("ca-certificates", "tzdata"),
)
USER = 65532
SITE = "usr/local/lib/python3.11/dist-packages"
_MERGED = ("bin", "sbin", "lib", "lib64")
# Of a package's papers the licence stays.
_PAPERS = (
    "usr/share/man/",
    "usr/share/locale/",
    "usr/share/info/",
    "usr/share/lintian/",
    "usr/share/bug/",
    "usr/share/doc/",
)
_UNUSED = ("ensurepip", "idlelib", "lib2to3", "pydoc_data", "tkinter", "turtledemo", "test", "distutils")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_MEDIA = "application/vnd.oci.image."


class CannotBuild(Exception):
    """Why there is no image."""


def main() -> int:
    """Build it, and say how large it is."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="allot-image-") as place:
            archive, sizes = build(folder, Path(place))
    except CannotBuild as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    write_checksums(folder)
    layers = ", ".join(f"{name} {size / 2**20:.1f} MiB" for name, size in sizes.items())
    sys.stdout.write(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB ({layers} unpacked)\n")
    return 0


def build(folder: Path, place: Path) -> tuple[Path, dict[str, int]]:
    """The archive, and how large each layer is unpacked. CannotBuild."""
    version, epoch = project_version(), source_date()
    architecture = _debian_architecture()
    base, app = place / "base", place / "app"
    packages = unpack_debian(base, place)
    install_packages(app / SITE, place, architecture)
    compile_all(base / "usr/lib/python3.11", base)
    compile_all(app / SITE, app)
    layers = {"Debian": layer(base, epoch), "allot": layer(app, epoch)}
    archive = folder / f"allot-image-{version}-{architecture}.oci.tar"
    write_archive(archive, list(layers.values()), version, architecture, epoch)
    bill = bill_of_materials(version, read_lock(LOCK), packages)
    (folder / f"allot-image-{version}-{architecture}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    return archive, {name: len(content) for name, content in layers.items()}


def _debian_architecture() -> str:
    release = Path("/etc/os-release")
    about = release.read_text() if release.exists() else ""
    if "ID=debian" not in about or f'VERSION_ID="{DEBIAN}"' not in about:
        raise CannotBuild(f"this is not Debian {DEBIAN}: expected it, as the image is made of its packages")
    found = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    if found not in _MACHINES:
        raise CannotBuild(f"architecture {found}: expected one of {', '.join(_MACHINES)}")
    return found


# --- Debian ---


def unpack_debian(base: Path, place: Path) -> list[dict[str, str]]:
    """Unpack the packages; their names, versions and checksums."""
    downloads = place / "downloads"
    downloads.mkdir()
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *PACKAGES]
    done = subprocess.run(command, cwd=downloads, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(
            f"Debian's packages cannot be fetched (is `apt-get update` needed?): {done.stderr.strip()[-500:]}"
        )
    for name in _MERGED:
        (base / "usr" / name).mkdir(parents=True, exist_ok=True)
        (base / name).symlink_to(f"usr/{name}")
    found = []
    for package in sorted(downloads.glob("*.deb")):
        told = subprocess.run(
            ["dpkg-deb", "-W", "--showformat=${Package} ${Version}", package],
            capture_output=True,
            text=True,
            check=True,
        )
        name, version = told.stdout.split()
        found.append({"name": name, "version": version, "sha256": hashlib.sha256(package.read_bytes()).hexdigest()})
        contents = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(contents)) as tar:
            for member in tar:
                _unpack(tar, member, base)
    _finish(base)
    return found


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, base: Path) -> None:
    name = _placed(member.name)
    if not name or (name.startswith(_PAPERS) and not name.endswith("/copyright")):
        return
    if name.startswith("usr/lib/python3.11/") and name.split("/")[3] in _UNUSED:
        return
    target = base / name
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        target.unlink(missing_ok=True)
        target.symlink_to(member.linkname)
    elif member.islnk():
        shutil.copy2(base / _placed(member.linkname), target)
    elif member.isfile():
        source = tar.extractfile(member)
        assert source is not None
        target.write_bytes(source.read())
        target.chmod(member.mode & 0o755)


def _placed(name: str) -> str:
    """Where Debian has it today: /lib is /usr/lib and so on."""
    path = PurePosixPath(name)
    parts = [part for part in path.parts if part not in (".", "/")]
    return "/".join(["usr", *parts] if parts and parts[0] in _MERGED else parts)


def _finish(base: Path) -> None:
    """What packages leave to scripts that run at their installation."""
    (base / "usr/bin/python3").symlink_to("python3.11")
    certificates = sorted((base / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = base / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_bytes(b"".join(each.read_bytes() for each in certificates))
    (base / "etc/passwd").write_text(
        f"root:x:0:0:root:/root:/usr/sbin/nologin\nallot:x:{USER}:{USER}:allot:/nonexistent:/usr/sbin/nologin\n"
    )
    (base / "etc/group").write_text(f"root:x:0:\nallot:x:{USER}:\n")
    (base / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    for name in ("tmp", "proc", "sys", "dev", "run", "var/tmp", "var/run"):
        (base / name).mkdir(parents=True, exist_ok=True)
    (base / "tmp").chmod(0o1777)


# --- allot ---


def install_packages(site: Path, place: Path, architecture: str) -> None:
    """allot and what its lock file names, as wheels for the image's Python."""
    site.mkdir(parents=True)
    machine = _MACHINES[architecture]
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(5, 37)] + [f"manylinux2014_{machine}"]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
        "--target",
        str(site),
        "--no-deps",
    ]
    only = ["--only-binary=:all:", f"--python-version={PYTHON[0]}.{PYTHON[1]}", "--implementation=cp"]
    options = [*only, *(f"--platform={each}" for each in platforms)]
    _run([*pip, *options, "--require-hashes", "--requirement", str(LOCK)])
    wheels = place / "wheels"
    _run([sys.executable, "-m", "hatchling", "build", "-d", str(wheels), "-t", "wheel"])
    (wheel,) = wheels.glob("*.whl")
    _run([*pip, *options, "--no-index", str(wheel)])
    shutil.rmtree(site / "bin", ignore_errors=True)
    remove_old_schemas(site)


def remove_old_schemas(site: Path) -> None:
    """Of Kubernetes' schemas allot reads the newest (`apiserver/kinds/schemas.py`); those of a dozen versions are half of the image."""
    folders = [
        (_schema_version(each), each) for each in (site / "kubernetes_validate/kubernetes-json-schema").iterdir()
    ]
    newest = max(version for version, _ in folders)
    for version, folder in folders:
        if version != newest and folder.is_dir():
            shutil.rmtree(folder)


def _schema_version(folder: Path) -> tuple[int, ...]:
    """Empty for others, which no validator of ours reads."""
    matched = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)-local", folder.name)
    return tuple(map(int, matched.groups())) if matched else ()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode:
        raise CannotBuild(f"{' '.join(command[2:5])}: {done.stderr.strip()[-1000:]}")


def _environment() -> dict[str, str]:
    return {**os.environ, "SOURCE_DATE_EPOCH": str(source_date())}


def compile_all(folder: Path, root: Path) -> None:
    """Compiled code beside every module: the image is read-only, so no one could do it later. Another Python's would not be read."""
    if sys.version_info[:2] != PYTHON:
        sys.stderr.write(
            f"note: this is not Python {PYTHON[0]}.{PYTHON[1]}: code is not compiled, programs start slower\n"
        )
        return
    for old in folder.rglob("__pycache__"):
        shutil.rmtree(old)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(folder, maxlevels=50, quiet=2, stripdir=str(root), prependdir="/", invalidation_mode=mode)


# --- the archive ---


def layer(root: Path, epoch: int) -> bytes:
    """A folder as a layer: sorted, root's, with one time."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            entry = tar.gettarinfo(path, path.relative_to(root).as_posix())
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = epoch
            entry.pax_headers = {}
            if entry.islnk():
                # A second name of a file in this folder; it is one here too, but names must not depend on inodes.
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
            if entry.isreg():
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            else:
                tar.addfile(entry)
    return content.getvalue()


def write_archive(archive: Path, layers: list[bytes], version: str, architecture: str, epoch: int) -> None:
    """An OCI layout in a tar file."""
    blobs: dict[str, bytes] = {}

    def blob(kind: str, content: bytes, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": f"{_MEDIA}{kind}", "digest": f"sha256:{digest}", "size": len(content), **more}

    packed = [blob("layer.v1.tar+gzip", gzip.compress(each, 6, mtime=0)) for each in layers]
    config = blob("config.v1+json", _json(_configuration(layers, version, architecture, epoch)))
    manifest = {"schemaVersion": 2, "mediaType": f"{_MEDIA}manifest.v1+json", "config": config, "layers": packed}
    names = {
        "org.opencontainers.image.ref.name": version,
        "io.containerd.image.name": f"docker.io/library/allot:{version}",
    }
    listed = blob(
        "manifest.v1+json", _json(manifest), platform={"architecture": architecture, "os": "linux"}, annotations=names
    )
    index = {"schemaVersion": 2, "mediaType": f"{_MEDIA}index.v1+json", "manifests": [listed]}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    files |= {f"blobs/sha256/{digest}": content for digest, content in blobs.items()}
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o644, epoch
            tar.addfile(entry, io.BytesIO(content))


def _configuration(layers: list[bytes], version: str, architecture: str, epoch: int) -> dict[str, Any]:
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"title": "allot", "version": version, "licenses": "Apache-2.0", "created": created}
    return {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/local/bin:/usr/bin", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1", "LANG=C.UTF-8"],
            "Entrypoint": ["/usr/bin/python3", "-m", "allot"],
            "Cmd": ["--help"],
            "WorkingDir": "/",
            "Labels": {f"org.opencontainers.image.{name}": value for name, value in about.items()},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]},
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


if __name__ == "__main__":
    sys.exit(main())
