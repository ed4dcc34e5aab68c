"""What `allot up`, `down`, `status` and `reset` take and refuse, without a cluster."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from allot.cli.commands.apiserver import apiserver
from allot.cli.commands.controllers import controllers
from allot.cli.commands.node import node
from allot.cli.commands.scheduler import scheduler
from allot.cli.commands.up import up
from allot.cli.errors import Unreadable
from allot.cli.gates import gates_text, parse_gates
from allot.cli.server_options import CannotServe
from allot.cli.up.banner import announce
from allot.cli.up.instance import AlreadyRunning, Instance, InstanceState
from allot.cli.up.local_node import LocalNode, LocalOptions
from allot.cli.up.node_sets import Nodes, keep_nodes, kept_nodes, parse_specs
from allot.core.features import DEFAULT_GATES
from allot.node.runtimes.shim import start_time
from cli.command import allot
from waiting import WAIT_S


def names(*specs: str) -> tuple[str, ...]:
    return parse_specs(specs).all_names


# --- which nodes ---


def test_nodes_are_profiles_with_counts() -> None:
    assert names("t4=2", "a3-ultragpu-8g") == ("t4-0", "t4-1", "a3-ultragpu-8g")
    assert names("Standard_NC4as_T4_v3") == ("standard-nc4as-t4-v3",)
    assert names("none") == ()
    assert parse_specs(("none",)).are_none
    assert parse_specs(("local",)).local


def test_a_file_can_say_which_nodes(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text("nodes:\n- {name: gpu, profile: h100x8, count: 2}\n")
    assert names(str(file), "t4") == ("gpu-0", "gpu-1", "t4")
    file.write_text("nodes:\n- profile: h100x8\n  colour: red\n")
    with pytest.raises(Unreadable, match=r"nodes\.yaml: line 3: unknown field 'colour'"):
        names(str(file))


@pytest.mark.parametrize(
    ("specs", "text"),
    [
        (("h100x9000",), "unknown machine"),
        (("t4=0",), "'0' is not a number of nodes from 1 to 20000"),
        (("t4=many",), "'many' is not a number"),
        (("t4", "t4"), "two nodes would have the name t4"),
        (("none", "t4"), "cannot be used together"),
        (("./nowhere.yaml",), "no such file"),
        (("t4=20000", "l4=2"), "20002 nodes, expected at most 20000"),
    ],
)
def test_what_is_no_node_is_refused(specs: tuple[str, ...], text: str) -> None:
    with pytest.raises(Unreadable, match=text):
        names(*specs)


def test_an_unknown_profile_names_the_nearest_ones(tmp_path: Path) -> None:
    done = allot("up", "--data-dir", str(tmp_path), "--node", "a3-ultra-8g")
    assert done.code == 2
    assert "hint: did you mean" in done.stderr
    assert "a3-ultragpu-8g" in done.stderr


def test_a_count_belongs_to_the_node_before_it(tmp_path: Path) -> None:
    done = allot("up", "--data-dir", str(tmp_path), "--count", "3")
    assert done.code == 2
    assert "--count must come after its --node" in done.stderr
    done = allot("up", "--data-dir", str(tmp_path), "--node", "t4", "--count", "zero")
    assert "'zero' is not a number of nodes" in done.stderr


def test_all_profiles_are_listed() -> None:
    done = allot("up", "--list-profiles")
    assert done.code == 0
    assert "p4d.24xlarge" in done.stdout
    assert "ct6e-standard-4t" in done.stdout


def test_the_set_of_nodes_is_kept(tmp_path: Path) -> None:
    assert kept_nodes(tmp_path) is None
    nodes = parse_specs(("t4=2", "local"))
    keep_nodes(tmp_path, nodes)
    assert kept_nodes(tmp_path) == nodes
    (tmp_path / "nodes.json").write_text("{")
    with pytest.raises(Unreadable, match=r"nodes\.json"):
        kept_nodes(tmp_path)


def test_nodes_without_devices_are_not_waited_for() -> None:
    assert parse_specs(("n2-standard-4", "t4")).drivers == {"n2-standard-4": (), "t4": ("gpu",)}
    assert Nodes().all_names == ()


def test_a_data_directory_that_is_too_deep_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="paths longer than the machine allows"):
        LocalNode(LocalOptions(), tmp_path / ("deep" * 20), tmp_path / "kubeconfig", "default")


def test_a_container_runtime_that_is_not_there_is_told_before_anything_waits_for_it(tmp_path: Path) -> None:
    options = LocalOptions(runtime="cri", endpoint=f"unix://{tmp_path}/cri.sock")
    with pytest.raises(CannotServe, match=f"there is no container runtime at {tmp_path}/cri.sock"):
        LocalNode(options, Path("/var/lib/n"), tmp_path / "kubeconfig", "default")


@pytest.mark.parametrize("count", [("--count",), ("--count", "many"), ("--count=",)])
def test_a_count_that_is_no_number_is_told_as_it_was_given(count: tuple[str, ...], tmp_path: Path) -> None:
    done = allot("up", "--data-dir", str(tmp_path), "--node", "t4", *count)
    assert done.code == 2
    assert done.stderr.startswith("error: --count: ")


# --- other options ---


def test_stores_exclude_each_other(tmp_path: Path) -> None:
    for other in (("--memory",), ("--etcd-servers", "http://127.0.0.1:1")):
        assert allot("up", "--data-dir", str(tmp_path), "--etcd", *other).code == 2


def test_without_an_etcd_on_the_machine_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALLOT_ETCD", "PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    done = allot("up", "--data-dir", str(tmp_path), "--etcd")
    assert done.code == 3
    assert done.stderr.splitlines()[0] == "error: no etcd on this machine"


def test_children_get_the_same_feature_gates() -> None:
    for text in ("default", "all", "DRAConsumableCapacity=false"):
        gates = parse_gates(None, None, text)  # type: ignore[arg-type]
        assert parse_gates(None, None, gates_text(gates)) == gates  # type: ignore[arg-type]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_their_completion(shell: str) -> None:
    done = allot("completion", shell)
    assert done.code == 0
    assert f"_ALLOT_COMPLETE={shell}_complete" in done.stdout


# --- the instance of a data directory ---


def test_what_does_not_run_is_told_and_not_ended(tmp_path: Path) -> None:
    done = allot("status", "--data-dir", str(tmp_path), "-o", "json")
    assert done.code == 3
    assert done.lines == [{"running": False, "dataDir": str(tmp_path)}]
    assert allot("down", "--data-dir", str(tmp_path)).stderr == f"not running: {tmp_path}\n"


def test_only_one_process_can_have_a_data_directory(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    with instance.held():
        instance.write(InstanceState(pid=4242, began=0, since=0.0))
        with pytest.raises(AlreadyRunning, match="in use by process 4242"), Instance(tmp_path).held():
            pass
        done = allot("up", "--data-dir", str(tmp_path), "--detach")
        assert done.code == 1
        assert done.stderr.splitlines()[0] == f"error: data directory {tmp_path}: in use by process 4242"
    assert instance.running() is None


def test_who_looks_does_not_keep_others_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = os.open(tmp_path / "up.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(looking, fcntl.LOCK_EX)
    # The look is over while the other one waits.
    monkeypatch.setattr("allot.cli.up.instance.time.sleep", lambda _: os.close(looking))
    instance = Instance(tmp_path)
    with instance.held():
        instance.write(InstanceState(pid=4242, began=0, since=0.0))


def test_a_process_that_merely_has_the_same_number_is_not_ours(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        instance = Instance(tmp_path)
        instance.write(InstanceState(pid=other.pid, began=start_time(other.pid), since=0.0))
        assert instance.running() is None  # nobody holds the lock
        with instance.held():
            instance.write(InstanceState(pid=other.pid, began=1, since=0.0))
            assert instance.running() is None  # it began at another time
            instance.write(InstanceState(pid=other.pid, began=start_time(other.pid), since=0.0))
            found = instance.running()
            assert found is not None and found.pid == other.pid
    finally:
        other.communicate(b"\n", timeout=WAIT_S)


def test_a_folder_of_others_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("42")
    assert allot("reset", "--data-dir", str(tmp_path), "--yes").code == 1
    assert (tmp_path / "thesis.txt").exists()


def test_data_is_removed_after_a_yes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "pki").mkdir(parents=True)
    refused = allot("reset", "--data-dir", str(data), stdin="n\n")
    assert (refused.code, data.exists()) == (1, True)
    unanswered = allot("reset", "--data-dir", str(data))
    assert (unanswered.code, unanswered.stderr.splitlines()[-2:]) == (
        1,
        ["error: nothing was removed: no answer", "hint: to skip the confirmation, use --yes"],
    )
    done = allot("reset", "--data-dir", str(data), stdin="y\n")
    assert (done.code, data.exists()) == (0, False)
    assert allot("reset", "--data-dir", str(data)).code == 0


def test_what_ends_a_cluster_in_the_background_can_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    state = InstanceState(pid=1, began=0, since=0.0)
    announce(state, background=tmp_path / "allot")
    assert "allot status shows its state, allot down stops it" in capsys.readouterr().err
    announce(state, background=Path("my data"))
    assert "allot down --data-dir 'my data' stops it" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is denied to root")
def test_a_data_directory_of_somebody_else_is_told_before_anything_starts(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    for detached in ((), ("--detach",)):
        done = allot("up", "--data-dir", str(tmp_path), *detached)
        assert done.code == 3
        assert done.stderr.splitlines()[0] == f"error: data directory {tmp_path}: permission denied"


def test_up_turns_on_the_gates_of_pod_groups_and_default_is_kubernetes_choice() -> None:
    (option,) = [each for each in up.params if each.name == "gates"]
    assert isinstance(option, click.Option)
    groups = {
        *("GenericWorkload", "DRAWorkloadResourceClaims", "TopologyAwareWorkloadScheduling"),
        *("CompositePodGroup", "PodGroupPreemptionPolicy"),
    }
    context = click.Context(up)
    assert parse_gates(context, option, str(option.default)).on == DEFAULT_GATES.on | groups
    assert parse_gates(context, option, "default") == DEFAULT_GATES
    assert parse_gates(context, option, "GenericWorkload=false").on == DEFAULT_GATES.on | groups - {"GenericWorkload"}
    assert parse_gates(context, option, "WorkloadWithJob=true").on == DEFAULT_GATES.on | groups | {"WorkloadWithJob"}
    # The other commands are as Kubernetes' components.
    for command in (apiserver, scheduler, controllers, node):
        (option,) = [each for each in command.params if each.name == "gates"]
        assert parse_gates(context, option, str(option.default)) == DEFAULT_GATES
