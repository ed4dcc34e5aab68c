"""What pods of process and simulated nodes cannot do to the machine, tried by real ones: as the user of the tests, and as nobody."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from allot.node.runtimes.machine_view import IDS_FIRST, machine_view, outside, ranges
from allot.process.mounts import libc
from allot.process.namespaces import become_owner_of_users
from nobody import NOBODY, become_nobody
from security.sandbox_trial import Asked, Came

_PROGRAM = Path(__file__).with_name("sandbox_trial.py")

slow = pytest.mark.slow


class World:
    """A folder of the machine with a secret, beside the agent's own, and somebody who tries."""

    def __init__(self, folder: Path, user: int) -> None:
        self.folder = folder
        self.user = user
        self.home, self.agent, self.machine = (self._make(name) for name in ("home", "agent", "machine"))
        self.secret = self.machine / "key"
        self.secret.write_text("secret")
        os.chown(self.secret, user, -1)

    def _make(self, name: str) -> Path:
        made = self.folder / name
        made.mkdir()
        made.chmod(0o755)
        os.chown(made, self.user, -1)
        return made

    def attempt(self, before: Callable[[], None] | None = None, **asked: object) -> Came:
        """Run the trial as the user."""
        given = msgspec.json.encode(msgspec.convert({"folder": str(self.agent), **asked}, Asked))
        become = become_nobody if self.user != os.geteuid() else None

        def first() -> None:
            if become is not None:
                become()
            if before is not None:
                before()

        done = subprocess.run(
            [sys.executable, str(_PROGRAM)],
            input=given,
            capture_output=True,
            timeout=120,
            check=False,
            preexec_fn=first if become is not None or before is not None else None,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "EXTRA": f"{self.home}/bin", "PYTHONPATH": _PATH},
            cwd="/",
        )
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        return msgspec.json.decode(done.stdout, type=Came)

    def said(self, **asked: object) -> Came:
        """Run the trial where sandboxes are allowed."""
        came = self.attempt(**asked)
        if not came.is_on:
            pytest.skip(came.message)
        return came


_PATH = os.pathsep.join((str(_PROGRAM.parents[2] / "src"), str(_PROGRAM.parents[1])))


@pytest.fixture(params=["us", "nobody"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "nobody" and os.geteuid() != 0:
        pytest.skip("only root can become nobody")
    # Not in pytest's folder, which other users cannot pass through.
    folder = Path(tempfile.mkdtemp(prefix="allot-sandbox-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield World(folder, os.geteuid() if request.param == "us" else NOBODY)
    shutil.rmtree(folder)


@slow
def test_a_pod_writes_only_to_what_is_its_own(world: World) -> None:
    places = [
        *(world.machine / "new", world.secret, world.home / "new", world.agent / "new", world.folder / "new"),
        *(Path("/etc/passwd"), Path("/usr/bin/env"), Path("/var/tmp/allot-escaped"), Path("/tmp/allot-escaped")),
    ]
    before = {each: each.stat().st_mtime_ns for each in places if each.exists()}
    came = world.said(
        scripts={
            **{f"write {each}": f"mkdir -p {each.parent}; echo x > {each}" for each in places},
            "own": "echo x > /new && echo x > /etc/new && echo x > /usr/local/bin/new && echo x > ~/new && echo x > /tmp/new"
            " && echo x > /data/new && echo x > /dev/shm/new && echo $HOME && pwd",
        }
    )
    assert came.said["own"][0] == 0, came.said["own"]
    assert {each: each.stat().st_mtime_ns for each in places if each.exists()} == before
    assert not any(
        Path(each).exists() for each in ("/new", "/etc/new", "/usr/local/bin/new", "/tmp/new", "/dev/shm/new")
    )
    assert world.secret.read_text() == "secret"
    assert str(world.home) not in came.said["own"][1]


@slow
def test_a_pod_reads_no_secret_of_the_machine(world: World) -> None:
    (world.home / ".ssh").mkdir()
    kubeconfig = world.home / "config"
    for path in (world.home / ".ssh/id", kubeconfig):
        path.write_text("secret")
        os.chown(path, world.user, -1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(world.machine / "runtime.sock"))
        listener.listen()
        paths = [
            world.secret,
            world.home / ".ssh/id",
            kubeconfig,
            world.agent / "runtime",
            world.machine / "runtime.sock",
        ]
        scripts = {str(each): f"cat {each} || ls {each}" for each in paths}
        scripts |= {each: f"cat {each}" for each in ("/etc/shadow", "/etc/gshadow", "/proc/kcore", "/proc/1/environ")}
        scripts["devices"] = "ls /dev"
        scripts["sockets"] = "find / -xdev -type s 2>/dev/null; ls /run /var/run"
        came = world.said(scripts=scripts)
    for path in paths:
        code, said = came.said[str(path)]
        assert code != 0 and "secret" not in said and "No such file" in said, (path, said)
    for each in ("/etc/shadow", "/etc/gshadow", "/proc/kcore"):
        assert came.said[each][0] != 0, came.said[each]
    assert str(world.folder) not in came.said["/proc/1/environ"][1]
    expected = [
        "fd",
        "full",
        "null",
        "ptmx",
        "pts",
        "random",
        "shm",
        "stderr",
        "stdin",
        "stdout",
        "termination-log",
        "tty",
        "urandom",
        "zero",
    ]
    assert came.said["devices"][1].split() == expected
    assert came.said["sockets"][1].split() == ["/run:", "lock", "/var/run:", "lock"]


@slow
def test_programs_below_a_home_are_found_and_cannot_be_changed(world: World) -> None:
    programs = world.home / "tools/bin"
    programs.mkdir(parents=True)
    tool = programs / "allot-tool"
    tool.write_text("#!/bin/sh\ncat $(dirname $(readlink -f $0))/../lib/part\n")
    tool.chmod(0o755)
    (world.home / "tools/lib").mkdir()
    (world.home / "tools/lib/part").write_text("it works")
    (world.home / "tools/token").write_text("secret")
    (world.home / "bin").mkdir()
    (world.home / "bin/allot-tool").symlink_to(tool)
    came = world.said(
        scripts={
            "run": "allot-tool",
            "change": f"echo x > {tool}",
            "add": f"echo x > {programs}/new",
            "token": f"cat {world.home}/tools/token",
            "python": f"{sys.executable} -c 'import json; print(json.dumps([1]))'",
        }
    )
    assert came.said["run"] == (0, "it works")
    assert "Read-only file system" in came.said["change"][1]
    assert "Read-only file system" in came.said["add"][1]
    assert "No such file" in came.said["token"][1]
    assert came.said["python"] == (0, "[1]\n")


@slow
def test_a_pod_sees_and_signals_no_process_but_its_own(world: World) -> None:
    def become() -> None:
        os.setresuid(world.user, world.user, world.user)

    with subprocess.Popen(["sleep", "600"], preexec_fn=become) as victim:
        try:
            came = world.said(
                scripts={
                    "list": "ls /proc | grep '^[0-9]*$' | wc -l; cat /proc/[0-9]*/cmdline | tr '\\0' ' '",
                    "kill": f"kill -9 {victim.pid}; kill -9 {os.getpid()}",
                    "everybody": "kill -STOP 1; kill -9 1; sleep 0.1; echo alive",
                    "ipc": "ipcs -q; ipcmk -Q; ipcs -q | grep -c 0x",
                }
            )
            assert victim.poll() is None
        finally:
            victim.send_signal(signal.SIGKILL)
    # Its first process, the container, its sleep, the exec, and what lists them.
    assert int(came.said["list"][1].split()[0]) <= 8
    assert "sleep 600" not in came.said["list"][1]
    assert came.said["kill"][0] != 0
    assert came.said["everybody"][1].endswith("alive\n")


@slow
def test_a_pod_cannot_fill_the_machine(world: World) -> None:
    fill = "dd if=/dev/zero of=%s bs=1M count=2000 2>&1 | tail -1; rm -f %s"
    places = ("/data/big", "/tmp/big", "/dev/shm/big", "/big", "/etc/big", "/usr/local/lib/big")
    came = world.said(
        scripts={
            **{place: fill.replace("%s", place) for place in places},
            "files": "i=0; mkdir /tmp/f; while touch /tmp/f/$i 2>/dev/null && [ $i -lt 1000 ]; do i=$((i+1)); done; df -i /tmp | tail -1",
            "message": "dd if=/dev/zero of=/dev/termination-log bs=1M count=2000 2>&1 | tail -1",
            "processes": "grep processes /proc/self/limits",
        }
    )
    for place in places:
        assert "copied" in came.said[place][1]
        copied = int(came.said[place][1].split()[0])
        assert copied <= (8 if place == "/data/big" else 512) * 2**20, (place, copied)
    assert int(came.said["files"][1].split()[1]) <= 200_000
    assert came.message_bytes <= 4096
    assert came.disk_bytes < 2**20
    assert came.said["processes"][1].split()[2:4] == ["4096", "4096"]


@slow
def test_a_pod_cannot_undo_its_sandbox(world: World) -> None:
    came = world.said(
        user=0,
        scripts={
            "unmount": "umount /usr; umount /proc; umount -l /; umount /data",
            "remount": "mount -o remount,rw /usr || mount -o remount,rw,bind /sys",
            "mount": "mount -t tmpfs none /mnt || mount -t proc none /mnt || mount --bind / /mnt",
            "namespaces": "unshare -Um true || unshare -m true",
            "device": "mknod /tmp/disk b 8 0 && cat /tmp/disk",
            "settings": "echo 1 > /proc/sys/vm/drop_caches || echo 5 > /proc/sys/user/max_user_namespaces",
            "kernel": "echo c > /proc/sysrq-trigger || echo 1 > /sys/kernel/mm/ksm/run",
            "groups": "for f in $(find /sys/fs/cgroup -name cgroup.procs 2>/dev/null | head -50); do echo $$ > $f && echo moved $f; done; true",
            "roots": "ls /proc/1/root/ | grep -x machine; cd /proc/1/cwd && cat ../../../../../../etc/shadow",
            "open": "ls -l /proc/self/fd | grep -v -E 'pipe|/dev/null|/proc/'",
        },
    )
    for name in ("unmount", "remount", "mount", "namespaces", "device", "settings", "kernel", "roots"):
        assert came.said[name][0] != 0, (name, came.said[name])
    assert "moved" not in came.said["groups"][1]
    assert came.said["open"][1].startswith("total 0\n") and came.said["open"][1].count("\n") == 1, came.said["open"]


@slow
def test_a_root_that_is_only_to_be_read(world: World) -> None:
    came = world.said(
        read_only_root=True,
        scripts={each: f"echo x > {each}/new" for each in ("", "/etc", "/usr/local/bin", "/tmp", "/data", "/dev/shm")},
    )
    assert {place: code == 0 for place, (code, _) in came.said.items()} == {
        **dict.fromkeys(("", "/etc", "/usr/local/bin", "/tmp"), False),
        **dict.fromkeys(("/data", "/dev/shm"), True),
    }


@slow
def test_a_pod_is_whoever_it_says_and_nobody_on_the_machine(world: World) -> None:
    shared = world.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    script = (
        "id -u; touch /shared/mine; stat -c %u /shared/mine /new; echo x > /shared/private; chmod 600 /shared/private"
    )
    came = world.said(user=4711, mounts={str(shared): "/shared"}, scripts={"who": f"touch /new; {script}"})
    assert came.said["who"] == (0, "4711\n4711\n4711\n")
    owner = (shared / "mine").stat().st_uid
    # On a file system that can shift owners, a volume's files have the numbers that the pod says, as everywhere in Kubernetes.
    assert owner in (4711, IDS_FIRST + 4711) if world.user == 0 else owner == world.user


@slow
@pytest.mark.parametrize("host_commands", [False, True], ids=["without", "with --host-commands"])
def test_where_the_kernel_allows_no_sandbox_nothing_runs_unless_it_is_told_to(
    world: World, host_commands: bool
) -> None:
    def refuse() -> None:
        """A user namespace that allows no other in it: as on machines that are set up so."""
        # Who has become somebody else may otherwise not look at themselves.
        libc.prctl(4, 1, 0, 0, 0)
        become_owner_of_users()
        Path("/proc/sys/user/max_user_namespaces").write_text("0")

    came = world.attempt(refuse, host_commands=host_commands, scripts={"read": f"cat {world.secret}"})
    assert not came.is_on
    if host_commands:
        assert "--host-commands: containers are processes of this machine" in came.message
        assert came.runs
        return
    assert not came.runs
    assert came.message == came.failure
    assert "this machine allows no sandbox" in came.message and "--host-commands" in came.message
    assert came.message in came.placeholder and came.placeholder.startswith("Placeholder for image")


@slow
def test_on_the_machine_itself_a_pod_has_the_files_of_the_agents_user(world: World) -> None:
    """What `--host-commands` means, so that nobody believes otherwise."""
    came = world.attempt(host_commands=True, scripts={"read": f"cat {world.secret}"})
    assert came.said["read"] == (0, "secret")


def test_ids_of_a_container_are_nobodys_on_the_machine_but_those_of_its_devices() -> None:
    assert ranges((0,)) == ((0, IDS_FIRST, 65536),)
    mapped = ranges((0, 1000680000), (44, 70000))
    assert [outside(each, mapped) for each in (0, 43, 44, 45, 65535, 70000)] == [
        *(IDS_FIRST, IDS_FIRST + 43, 44, IDS_FIRST + 45, IDS_FIRST + 65535, 70000)
    ]
    assert outside(1000680000, mapped) == IDS_FIRST + 65536
    insides = sorted((first, count) for first, _, count in mapped)
    assert all(first + count <= after for (first, count), (after, _) in itertools.pairwise(insides))


def test_a_view_of_the_machine_has_no_home_and_hides_what_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib/data").mkdir(parents=True)
    view = machine_view(f"{tmp_path}/bin:relative:/usr/bin:{Path.home()}", [tmp_path / "lib/data"])
    assert str(tmp_path / "bin") in view.shown and str(tmp_path / "lib") in view.shown
    assert str(tmp_path / "lib/data") in view.masked
    assert not any(Path.home().is_relative_to(each) for each in view.shown)
    assert not {"/", "/home", "/root", "/var", "/run", "/tmp", "/proc", "/sys", "/dev"} & {*view.layers, *view.shown}
    assert all(stat.S_IMODE(Path(each).stat().st_mode) & 0o005 == 0o005 for each in view.own)
