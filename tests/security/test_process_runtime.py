"""A container of the process runtime and the files of the machine: links that it makes, exchanges and moves lead the agent nowhere.

Races are tried 200 times here, and as often as ALLOT_TRIES says (`make escapes` tries 10,000 times each).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from allot.core.lifecycle.pod_environment import PodFacts
from allot.core.lifecycle.pods import Start
from allot.core.model.pods_v1 import decode_runnable
from allot.driver.files import replace_file
from allot.node.containers import ContainerSpecs
from allot.node.logs import tail_of
from allot.node.objects import Objects
from allot.node.pod_resources import PodResources
from allot.node.pods import PodWorker, Services
from allot.node.runtimes import container_mounts
from allot.node.runtimes.port import RuntimeFailure
from allot.node.subpaths import open_subpath
from allot.node.volumes import MountFailure, Volumes
from allot.process.beneath import read_file
from allot.process.clock import SystemClock
from node.cluster import Cluster, shell
from security.link_attacks import attacking
from waiting import wait_for

pytestmark = pytest.mark.slow

TRIES = int(os.environ.get("ALLOT_TRIES", "200"))
# Each of them makes a namespace with its mounts.
TRIES_OF_MOUNTS = int(os.environ.get("ALLOT_TRIES", "40"))
FACTS = PodFacts(host_ips=("10.0.0.1",), pod_ips=(), allocatable={})
NOBODY = 65534
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can have containers of other users")
# Config maps and tokens are not asked for: nothing here needs an API server.
NO_OBJECTS = cast("Objects", None)


class Machine:
    """Files of the machine that nobody has given to a container."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "etc" / "deep").mkdir(parents=True)
        self.secret = folder / "etc" / "shadow"
        self.secret.write_text("root:secret")
        self.secret.chmod(0o640)
        (folder / "etc" / "deep" / "file").write_text("machine")
        self._before = self._look()

    def add(self, name: str, content: str) -> Path:
        """One more file."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        self._before = self._look()
        return path

    def _look(self) -> dict[str, tuple[Any, ...]]:
        found = {}
        for path in sorted((self.folder, *self.folder.rglob("*"))):
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            told = (status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_nlink, status.st_mtime_ns)
            found[str(path)] = (*told, content)
        return found

    def check(self) -> None:
        """Nothing has been added, removed or changed: content, rights, owner, time."""
        assert self._look() == self._before


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "machine")
    yield made
    made.check()


def pod(uid: str = "u-1", text: str = "", **spec: Any) -> Any:
    told = {"name": "p", "namespace": "default", "uid": uid, "annotations": {"text": text}}
    return decode_runnable(
        {
            "metadata": told,
            "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
        }
    )


def downward(*paths: str) -> dict[str, Any]:
    items = [{"path": each, "fieldRef": {"fieldPath": "metadata.annotations['text']"}} for each in paths]
    return {"name": "v", "downwardAPI": {"items": items}}


def tried(times: int, act: Callable[[int], object]) -> int:
    """Act so often; how often nothing stood in the way. What an attack prevents fails, and that is all it may do."""
    done = 0
    for number in range(times):
        with contextlib.suppress(MountFailure, RuntimeFailure, OSError):
            act(number)
            done += 1
    return done


# --- what the agent writes ---


def test_links_in_a_volume_that_the_agent_keeps_up_to_date(
    machine: Machine, tmp_path: Path, runner: asyncio.Runner
) -> None:
    volumes = Volumes(tmp_path / "pods", NO_OBJECTS, SystemClock())
    folder = tmp_path / "pods/u-1/volumes/kubernetes.io~downward-api/v"

    def write(number: int) -> None:
        made = pod(text=f"{number}", volumes=[downward("shadow", "deep/file")])
        runner.run(volumes.set_up(made, FACTS))

    write(-1)
    with attacking(tmp_path / "evil", machine.folder / "etc", f"{folder}/*", f"{folder}/..data_tmp"):
        tried(TRIES, write)
    machine.check()
    # And when it is left alone, the volume is as it should be.
    write(-2)
    assert (folder / "shadow").read_text() == (folder / "deep/file").read_text() == "-2"


def test_links_inside_of_what_the_agent_is_just_writing(
    machine: Machine, tmp_path: Path, runner: asyncio.Runner
) -> None:
    volumes = Volumes(tmp_path / "pods", NO_OBJECTS, SystemClock())
    folder = tmp_path / "pods/u-1/volumes/kubernetes.io~downward-api/v"

    def write(number: int) -> None:
        made = pod(text=f"{number}", volumes=[downward("deep/file", "deep/other", "shadow")])
        runner.run(volumes.set_up(made, FACTS))

    write(-1)
    with attacking(tmp_path / "evil", machine.folder / "etc/deep", f"{folder}/..*/deep"):
        tried(TRIES, write)


def test_links_in_place_of_a_termination_message(machine: Machine, tmp_path: Path, runner: asyncio.Runner) -> None:
    container = {"name": "c", "image": "i", "terminationMessagePath": "/dev/termination-log"}
    specs, made = ContainerSpecs(NO_OBJECTS), pod(containers=[container])
    place = tmp_path / "pods/u-1/containers/c/0"

    def make(_number: int) -> None:
        start = Start(name="c", attempt=0)
        told = specs.make(
            *(made, made.spec.containers[0], start),
            image_id="",
            facts=FACTS,
            volumes={},
            folder=tmp_path / "pods/u-1",
            cdi_devices=(),
        )
        runner.run(told)

    make(0)
    assert mode_of(place) == 0o666
    with attacking(tmp_path / "evil", machine.secret, str(place)):
        tried(TRIES, make)


def test_a_termination_message_is_read_from_a_file_and_from_nothing_else(machine: Machine, tmp_path: Path) -> None:
    place = tmp_path / "message"
    place.write_bytes(b"x" * 5000 + b"end")
    assert read_file(place, 4096) == (b"x" * 5000 + b"end")[-4096:]
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(OSError, match="not an ordinary file"):
        read_file(place, 4096)
    place.unlink()
    place.hardlink_to(machine.secret)
    with pytest.raises(OSError, match="not an ordinary file with one name"):
        read_file(place, 4096)
    place.unlink()
    place.write_text("mine")
    with attacking(tmp_path / "evil", machine.secret, str(place)):
        for _ in range(TRIES):
            with contextlib.suppress(OSError):
                assert read_file(place, 4096) == b"mine"


def test_a_link_in_place_of_a_log_shows_nothing(machine: Machine, tmp_path: Path) -> None:
    other = machine.add("log", "2024-01-01T00:00:00Z stdout F secret\n")
    log = tmp_path / "0.log"
    log.write_text("2024-01-01T00:00:00Z stdout F mine\n")
    with attacking(tmp_path / "evil", other, str(log)):
        said = {tail_of(log) for _ in range(TRIES)}
    assert said <= {"mine\n", ""}


# --- parts of volumes ---


def subpath_pod(below: str) -> Any:
    mount = {"name": "v", "mountPath": "/data", "subPath": below}
    container = {"name": "c", "image": "i", "terminationMessagePath": "", "volumeMounts": [mount]}
    return pod(volumes=[{"name": "v", "emptyDir": {}}], containers=[container])


def test_making_a_part_of_a_volume_while_links_are_exchanged(
    machine: Machine, tmp_path: Path, runner: asyncio.Runner
) -> None:
    specs, made = ContainerSpecs(NO_OBJECTS), subpath_pod("a/b/new")
    volume = tmp_path / "volume"
    (volume / "a/b").mkdir(parents=True)

    def make(_number: int) -> None:
        with contextlib.suppress(OSError):
            (volume / "a/b/new").rmdir()
        told = specs.make(
            *(made, made.spec.containers[0], Start(name="c", attempt=0)),
            image_id="",
            facts=FACTS,
            volumes={"v": volume},
            folder=tmp_path / "pods/u-1",
            cdi_devices=(),
        )
        runner.run(told)

    make(0)
    with attacking(tmp_path / "evil", machine.folder / "etc", f"{volume}/a", f"{volume}/a/b"):
        tried(TRIES, make)


def in_a_child(act: Callable[[], None]) -> bool:
    """Do something in a process of its own, which ends with it; whether it was done. What fails is no escape."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except AssertionError:
            code = 9
        except Exception:
            code = 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code != 9, "a file of the machine is in the container"
    return code == 0


def can_mount(tmp_path: Path) -> bool:
    (tmp_path / "probe").mkdir()

    def probe() -> None:
        container_mounts.enter_namespace()
        mount = {"host_path": str(tmp_path), "container_path": "/mnt/probe", "read_only": True}
        container_mounts.make_mounts([mount], str(tmp_path / "probe"))

    return in_a_child(probe)


def test_mounting_a_part_of_a_volume_while_links_are_exchanged(machine: Machine, tmp_path: Path) -> None:
    if not can_mount(tmp_path):
        pytest.skip("this machine allows no mounts")
    volume, scratch = tmp_path / "volume", tmp_path / "scratch"
    (volume / "a/b").mkdir(parents=True)
    scratch.mkdir()
    part = {"host_path": str(volume), "sub_path": "a/b", "container_path": "/mnt/data"}

    def start() -> None:
        container_mounts.enter_namespace()
        container_mounts.make_mounts([part], str(scratch))
        assert not list(Path("/mnt/data").iterdir())

    machine.add("etc/b/key", "secret")
    with attacking(tmp_path / "evil", machine.folder / "etc", f"{volume}/a"):
        done = sum(in_a_child(start) for _ in range(TRIES_OF_MOUNTS))
    assert done, "now and then the folder itself is there"


def test_a_place_to_mount_at_inside_of_a_volume_while_links_are_exchanged(machine: Machine, tmp_path: Path) -> None:
    if not can_mount(tmp_path):
        pytest.skip("this machine allows no mounts")
    volume, other, scratch = tmp_path / "volume", tmp_path / "other", tmp_path / "scratch"
    for folder in (volume / "a", other, scratch):
        folder.mkdir(parents=True)
    mounts = [
        {"host_path": str(volume), "container_path": "/mnt/data"},
        {"host_path": str(other), "container_path": "/mnt/data/a/made/new"},
    ]

    def start() -> None:
        container_mounts.enter_namespace()
        container_mounts.make_mounts([dict(each) for each in mounts], str(scratch))

    with attacking(tmp_path / "evil", machine.folder / "etc", f"{volume}/a"):
        for _ in range(TRIES_OF_MOUNTS):
            in_a_child(start)
            with contextlib.suppress(OSError):
                shutil.rmtree(volume / "a/made")


def test_a_part_of_a_volume_may_be_behind_a_link_that_stays_in_it(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "real").mkdir(parents=True)
    volume.chmod(0o777)
    (volume / "inside").symlink_to("./real/../real")
    (volume / "up").symlink_to("real/../../machine")
    (volume / "absolute").symlink_to("/etc")
    (volume / "loop").symlink_to("loop")
    place = open_subpath(str(volume), "inside/new")
    assert Path(f"/proc/self/fd/{place}").readlink() == volume / "real/new"
    assert stat.S_IMODE(os.fstat(place).st_mode) == 0o777
    os.close(place)
    for below in ("up", "absolute/passwd", "../x", "loop"):
        with pytest.raises(OSError, match=r"leads out|symbolic links"):
            open_subpath(str(volume), below)


def test_nothing_can_be_mounted_over_the_kernels_own_files(tmp_path: Path) -> None:
    if not can_mount(tmp_path):
        pytest.skip("this machine allows no mounts")
    for target in ("/proc", "/proc/self/fd"):
        (tmp_path / "scratch").mkdir(exist_ok=True)

        def start(target: str = target) -> None:
            container_mounts.enter_namespace()
            container_mounts.make_mounts(
                [{"host_path": str(tmp_path), "container_path": target}], str(tmp_path / "scratch")
            )

        assert not in_a_child(start)


# --- removing ---


def fill(volume: Path) -> None:
    """All at once: whoever fills a volume step by step might be led away by links as well."""
    fresh = volume.parents[4] / "fresh"
    for path in ("a/b/c", "a/d", "e/f"):
        (fresh / path).mkdir(parents=True)
        (fresh / path / "file").write_text("x")
    volume.parent.mkdir(parents=True, exist_ok=True)
    fresh.rename(volume)


def test_removing_a_volume_while_links_are_exchanged(machine: Machine, tmp_path: Path) -> None:
    volumes = Volumes(tmp_path / "pods", NO_OBJECTS, SystemClock())
    volume = "volumes/kubernetes.io~empty-dir/v"
    places = [f"{tmp_path}/pods/*/{volume}/{each}" for each in ("a", "a/b", "a/d", "a/b/c", "e", "e/f", "a/b/c/file")]
    with attacking(tmp_path / "evil", machine.folder / "etc", *places):
        for number in range(TRIES):
            fill(tmp_path / "pods" / f"u-{number}" / volume)
            volumes.tear_down(f"u-{number}")
    # An attacker with the agent's own rights can be in the way, but only as long as it is there.
    for uid in volumes.uids():
        volumes.tear_down(uid)
    assert not volumes.uids()


def test_a_tree_of_any_depth_and_any_rights_is_removed(tmp_path: Path) -> None:
    volumes = Volumes(tmp_path / "pods", NO_OBJECTS, SystemClock())
    volume = tmp_path / "pods/u-1/volumes/kubernetes.io~empty-dir/v"
    volume.mkdir(parents=True)
    at = os.open(volume, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    (volume / "closed" / "deep").mkdir(parents=True)
    (volume / "closed" / "deep").chmod(0o500)
    (volume / "closed").chmod(0)
    volumes.tear_down("u-1")
    assert not (tmp_path / "pods/u-1").exists()


@is_root
def test_what_is_mounted_in_a_volume_stays(machine: Machine, tmp_path: Path) -> None:
    volumes = Volumes(tmp_path / "pods", NO_OBJECTS, SystemClock())
    volume = tmp_path / "pods/u-1/volumes/kubernetes.io~empty-dir/v"
    fill(volume)

    def remove() -> None:
        container_mounts.enter_namespace()
        ctypes.CDLL(None).mount(str(machine.folder).encode(), str(volume / "a/d").encode(), None, 4096, None)
        volumes.tear_down("u-1")

    in_a_child(remove)
    machine.check()


# --- names ---


@pytest.mark.usefixtures("machine")
def test_names_that_are_paths_are_refused(tmp_path: Path, runner: asyncio.Runner) -> None:
    volumes = Volumes(tmp_path / "pods", NO_OBJECTS, SystemClock())
    for uid in ("../../machine/etc", "..", "", "a/b", "x" * 300):
        with pytest.raises(MountFailure, match=r"pod: metadata\.uid '.*': expected the name of a file"):
            runner.run(volumes.set_up(pod(uid, volumes=[downward("shadow")]), FACTS))
    named = pod(volumes=[{**downward("shadow"), "name": "../../../../machine"}])
    with pytest.raises(MountFailure, match=r"pod default/p: volume '\.\./\.\./\.\./\.\./machine': expected"):
        runner.run(volumes.set_up(named, FACTS))
    for path in ("/etc/passwd", "../x", "a/../../x", "..data"):
        with pytest.raises(MountFailure, match="invalid path"):
            runner.run(volumes.set_up(pod(volumes=[downward(path)]), FACTS))


def test_a_pod_with_such_a_name_gets_no_worker() -> None:
    raw = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u-1"},
        "spec": {"containers": [{"name": "../../c", "image": "i"}]},
    }
    with pytest.raises(ValueError, match=r"pod default/p: spec\.containers\[\]\.name '\.\./\.\./c': expected"):
        PodWorker(cast("Services", None), raw)


# --- drivers ---


def test_a_link_where_a_driver_begins_a_file(machine: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / ".limits.new").symlink_to(machine.secret)
    replace_file(folder / "limits", b"new", 0o644)
    assert (folder / "limits").read_bytes() == b"new"
    with attacking(tmp_path / "evil", machine.secret, f"{folder}/.limits.new", f"{folder}/limits"):
        tried(TRIES, lambda number: replace_file(folder / "limits", f"{number}".encode(), 0o644))


# --- sockets ---


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_the_socket_of_pod_resources_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "pod-resources" / "kubelet.sock"
    service = PodResources(lambda: (), cast("Any", None), SystemClock())
    async with service.serving(path):
        assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o700)
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            assert await channel.unary_unary("/v1.PodResourcesLister/List")(b"") == b""


# --- real containers of another user ---


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Not in pytest's folder, which other users cannot pass through.
    folder = Path(tempfile.mkdtemp(prefix="allot-escapes-"))
    folder.chmod(0o711)
    with Cluster(folder) as made:
        yield made
    shutil.rmtree(folder, ignore_errors=True)


@is_root
def test_a_container_of_another_user_reads_and_writes_only_what_is_its_own(cluster: Cluster) -> None:
    root = cluster.root
    cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "one"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"k": "secret"}},
    )
    mounts = [
        {"name": "settings", "mountPath": "/etc/settings"},
        {"name": "key", "mountPath": "/etc/key"},
        {"name": "data", "mountPath": "/data"},
        {"name": "data", "mountPath": "/part", "subPath": "deep/part"},
    ]
    volumes = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "key", "secret": {"secretName": "key", "defaultMode": 0o400}},
        {"name": "data", "emptyDir": {}},
    ]
    script = (
        "cat /etc/settings/a /etc/key/k; echo; id -u; id -g; grep NoNewPrivs /proc/self/status;"
        "for f in /etc/settings/x /etc/settings/..data_tmp /etc/key/x; do touch $f 2>/dev/null && echo written; done;"
        "rm -rf /etc/settings/..data 2>/dev/null && echo removed;"
        "touch /data/x /part/y $PWD/z && ls /data/deep/part;"
        f"ls {root}/pods {root}/log/pods/* {root}/runtime/containers {root}/pki 2>/dev/null; echo end; sleep 600"
    )
    cluster.pod(
        "other",
        shell("c", script, volumeMounts=mounts),
        volumes=volumes,
        securityContext={"runAsUser": NOBODY, "fsGroup": 4711},
    )
    cluster.ready("other")
    said = wait_for("the end of the script", lambda: text if "end" in (text := cluster.run("logs", "other")) else None)
    assert said.split() == ["onesecret", "65534", "65534", "NoNewPrivs:", "1", "y", "end"]
    uid = cluster.get("pod", "other", "{.metadata.uid}")
    settings = root / "pods" / uid / "volumes/kubernetes.io~configmap/settings"
    assert (settings / "a").read_text() == "one"
    assert not mode_of(settings) & 0o022
    assert not mode_of(root / "pods") & 0o077
    for path in (*root.glob("runtime/containers/*/attach.sock"), root / "pod-resources/kubelet.sock"):
        assert mode_of(path) == 0o600
    for path in root.glob("runtime/containers/*/*.json"):
        assert mode_of(path) == 0o600
    cluster.run("delete", "pod", "other", "--now")
    wait_for("an empty folder", lambda: not (root / "pods" / uid).exists())


@is_root
def test_a_container_that_makes_links_in_its_volumes_gets_the_agent_nowhere(cluster: Cluster) -> None:
    """Two containers of a pod share a volume; one exchanges links while the other is started again and again."""
    canary = Machine(cluster.folder / "machine")
    attack = (
        f"mkdir -p /data/a /data/b; ln -s {canary.folder}/etc /data/b/link;"
        "while true; do mv -T /data/a /data/c; ln -s "
        + str(canary.folder)
        + "/etc /data/a; rm /data/a; mv -T /data/c /data/a; done"
    )
    victim = {"mountPath": "/part", "name": "data", "subPath": "a/deep/new"}
    cluster.pod(
        "links",
        shell("attacker", attack, volumeMounts=[{"name": "data", "mountPath": "/data"}]),
        shell("victim", "ls /part; exit 1", volumeMounts=[victim]),
        volumes=[{"name": "data", "emptyDir": {}}],
        securityContext={"runAsUser": NOBODY},
    )

    def was_tried() -> bool:
        ended = cluster.get("pod", "links", "{.status.containerStatuses[?(@.name=='victim')].restartCount}")
        return ended in ("1", "2", "3") or any("subPath" in each for each in cluster.events("links"))

    wait_for("a start beside links", was_tried, 60.0)
    cluster.run("delete", "pod", "links", "--now")
    canary.check()
