"""A real containerd for tests: found where scripts/fetch-containerd puts one, started in a folder of its own with an image made of
a static busybox."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from allot.node.control_groups import NoGroups, find_tree
from allot.node.runtimes.cri import CriOptions, CriRuntime
from allot.node.runtimes.port import RuntimeFailure
from allot.process.clock import SystemClock
from waiting import WAIT_S

IMAGE = "allot.test/busybox:1"
_PROGRAMS = ("sh", "cat", "echo", "sleep", "id", "nc", "head", "stty", "test", "true", "tail", "readlink", "tar")


def find_containerd() -> Path | None:
    """The folder with containerd, runc, cni and busybox: ALLOT_CONTAINERD or that of scripts/fetch-containerd."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "allot" / "containerd"
    for folder in (os.environ.get("ALLOT_CONTAINERD"), cache):
        if folder and (Path(folder) / "containerd").exists():
            return Path(folder)
    return None


def why_not() -> str:
    """Why containers cannot be run here; empty if they can."""
    if find_containerd() is None:
        return "no containerd found: run scripts/fetch-containerd, or set ALLOT_CONTAINERD to a folder with one"
    if os.geteuid() != 0:
        return "containerd needs root"
    if not Path("/sys/fs/cgroup").is_dir() or "cgroup" not in Path("/proc/mounts").read_text():
        return "no cgroups are mounted here"
    if not os.access("/sys/fs/cgroup", os.W_OK):
        return "cgroups cannot be written here"
    probe = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else f"no namespaces can be made here: {probe.stderr.decode().strip()}"


class ContainerdServer:
    """One containerd in a folder, which has to have a short name. It can be killed and started again."""

    def __init__(self, folder: Path, snapshotter: str = "native") -> None:
        """snapshotter: native copies an image for each container, and works everywhere."""
        binaries = find_containerd()
        assert binaries is not None, why_not()
        self.binaries = binaries
        self.folder = folder
        self._snapshotter = snapshotter
        self.socket = folder / "containerd.sock"
        # Where its agent makes the control groups of pods: not among those of a kubelet, or of other tests.
        self.groups = f"/allot-test-agent-{os.getpid()}-{id(self):x}"
        self.cdi = folder / "cdi"
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("cdi", "net.d"):
            (folder / name).mkdir(exist_ok=True)
        (folder / "config.toml").write_text(self._config())
        network = {
            "cniVersion": "1.0.0",
            "name": "allot-test",
            "plugins": [
                {
                    "type": "ptp",
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(folder / "ipam"),
                        # Tests that run at the same time have networks of their own.
                        "ranges": [[{"subnet": f"10.217.{os.getpid() % 256}.0/24"}]],
                        # To Services, which have addresses of their own.
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        (folder / "net.d" / "10-test.conflist").write_text(json.dumps(network))

    def _config(self) -> str:
        images, runtime = '"io.containerd.cri.v1.images"', '"io.containerd.cri.v1.runtime"'
        return f"""
version = 3
root = "{self.folder}/root"
state = "{self.folder}/state"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "{self.socket}"
[ttrpc]
  address = "{self.socket}.ttrpc"
[plugins.{images}]
  snapshotter = "{self._snapshotter}"
  use_local_image_pull = true
  [plugins.{images}.pinned_images]
    sandbox = "{IMAGE}"
[plugins.{runtime}]
  cdi_spec_dirs = ["{self.cdi}"]
  # A machine that is itself confined may not lower this.
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins.{runtime}.cni]
    bin_dirs = ["{self.binaries}/cni"]
    conf_dir = "{self.folder}/net.d"
  [plugins.{runtime}.containerd]
    default_runtime_name = "runc"
    [plugins.{runtime}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.{runtime}.containerd.runtimes.runc.options]
        BinaryName = "{self.binaries}/runc"
        Root = "{self.folder}/runc"
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
"""

    def start(self) -> None:
        """Start, and wait until it accepts connections."""
        environment = {**os.environ, "PATH": f"{self.binaries}:{os.environ['PATH']}"}
        with (self.folder / "containerd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.binaries / "containerd", "--config", self.folder / "config.toml"],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        for _ in range(400):
            if self._process.poll() is not None:
                raise RuntimeError(f"containerd ended: {self.log()}")
            try:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(str(self.socket))
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"containerd does not accept connections: {self.log()}")

    def log(self) -> str:
        """The end of its log."""
        return (self.folder / "containerd.log").read_text()[-4000:]

    def import_image(self) -> None:
        """Make the image of the tests, which is the sandboxes' image as well."""
        path = self.folder / "image.tar"
        path.write_bytes(busybox_image((self.binaries / "busybox").read_bytes()))
        self.import_archive(path)
        path.unlink()

    def import_archive(self, path: Path) -> None:
        """Make the image of an archive known."""
        command = [
            self.binaries / "ctr",
            "--address",
            self.socket,
            "--namespace",
            "k8s.io",
            "images",
            "import",
            "--local",
        ]
        subprocess.run([*command, "--snapshotter", self._snapshotter, path], check=True, capture_output=True)

    def kill(self) -> None:
        """SIGKILL; containers run on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def remove_containers(self) -> None:
        """End and remove all that is left of tests."""
        asyncio.run(self._remove_containers())

    async def _remove_containers(self) -> None:
        if self._process is None:
            self.start()
        clock = SystemClock()
        runtime = CriRuntime(clock, CriOptions(socket=str(self.socket)))
        until = clock.monotonic() + WAIT_S
        while True:
            try:
                await runtime.open()
                break
            except RuntimeFailure:
                # It ends containers of a kubelet that was stopped just now.
                if clock.monotonic() > until:
                    raise
                await clock.sleep(1.0)
        for sandbox in (await runtime.list())[0]:
            await runtime.remove_sandbox(sandbox.id)
        await runtime.close()

    def clean(self, folder: Path | None = None) -> None:
        """Unmount what may be left, and remove the folder, or one in which that is."""
        unmount_below(self.folder)
        remove_groups(self.groups)
        shutil.rmtree(folder or self.folder, ignore_errors=True)


def group_places(path: str) -> tuple[Path, ...]:
    """The folders of a control group in the kernel's trees; none without control groups."""
    try:
        return find_tree().places(path)
    except NoGroups:
        return ()


def remove_groups(path: str) -> None:
    """Remove what an agent has made for classes of pods; OSError if it left something of a pod."""
    for place in group_places(path):
        for folder, _, _ in os.walk(place, topdown=False):
            Path(folder).rmdir()


def unmount_below(folder: Path) -> None:
    """Whatever is still mounted there: pods outlive their agent, and so do their volumes."""
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((each for each in mounted if each.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", place], check=False)


def busybox_image(busybox: bytes) -> bytes:
    """An image as docker saves it, in a tar file."""
    content, raw_config = busybox_parts(busybox)
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    image = io.BytesIO()
    with tarfile.open(fileobj=image, mode="w") as tar:
        _add(tar, "manifest.json", json.dumps(manifest).encode(), 0o644)
        _add(tar, "config.json", raw_config, 0o644)
        _add(tar, "layer.tar", content, 0o644)
    return image.getvalue()


def busybox_parts(busybox: bytes) -> tuple[bytes, bytes]:
    """The only layer of an image, and its configuration."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "etc", "tmp", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", busybox, 0o755)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\nworker:x:1000:1000:worker:/:/bin/sh\n", 0o644)
        _add(tar, "etc/group", b"root:x:0:\nworker:x:1000:\n", 0o644)
        for program in _PROGRAMS:
            entry = tarfile.TarInfo(f"bin/{program}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    content = layer.getvalue()
    config = {
        "architecture": _architecture(),
        "os": "linux",
        # A sandbox has no command of its own: it lasts until it is ended.
        "config": {"Env": ["PATH=/bin", "FROM_IMAGE=yes"], "Cmd": ["/bin/sleep", "1000000"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(content)}"]},
    }
    return content, json.dumps(config).encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


class Registry:
    """A registry with one image, `team/box:1`, for those who know the password."""

    def __init__(self, busybox: bytes, username: str, password: str) -> None:
        layer, config = busybox_parts(busybox)
        kinds = "application/vnd.oci.image."
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{kinds}manifest.v1+json",
            "config": _described(f"{kinds}config.v1+json", config),
            "layers": [_described(f"{kinds}layer.v1.tar", layer)],
        }
        self._manifest = json.dumps(manifest).encode()
        self._blobs = {f"sha256:{_digest(each)}": each for each in (layer, config, self._manifest)}
        self._wanted = "Basic " + b64encode(f"{username}:{password}".encode()).decode()
        self.pulls = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """The image's name."""
        application = web.Application()
        application.router.add_get("/v2/{rest:.*}", self._answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"127.0.0.1:{runner.addresses[0][1]}/team/box:1"
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != self._wanted:
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="test"'})
        kind, _, name = request.match_info["rest"].removeprefix("team/box/").partition("/")
        if kind == "manifests":
            self.pulls += request.method == "HEAD"
            digest = f"sha256:{_digest(self._manifest)}"
            headers = {"Content-Type": "application/vnd.oci.image.manifest.v1+json", "Docker-Content-Digest": digest}
            return web.Response(body=self._manifest, headers=headers)
        if name in self._blobs:
            return web.Response(body=self._blobs[name])
        return web.Response(status=200 if not kind else 404)


def _described(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": f"sha256:{_digest(content)}", "size": len(content)}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
