"""Messages of programs, nodes and drivers: what they mean, and the first remedy, with the names of the pod that they are about."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from allot.core.advice.explain.messages.drivers import DRIVERS
from allot.core.advice.explain.messages.facts import FACTS, Facts
from allot.core.advice.explain.messages.nodes import NODES, SLOW
from allot.core.advice.explain.messages.programs import PROGRAMS
from allot.core.advice.explain.messages.table import Saying, meaning_of
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "serve", "namespace": "ml", "uid": "p1"},
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "main", "image": "vllm:1", "resources": {"limits": {"memory": "16Gi"}}}],
    },
    "status": {"phase": "Running"},
}
# What each is made of besides texts: given by the caller, or groups of its pattern.
GIVEN = {"node", "namespace", "pod", "self", "container", "image", "plugin"}


def facts(**known: str) -> Facts:
    what_if = WhatIfCluster(Snapshot((read_object(POD),)))
    pod = what_if.get(core_v1.Pod, "serve", "ml")
    assert pod is not None
    return Facts(what_if, pod, "main", **known)


SAID = [
    (
        "stat /proc/driver/nvidia/capabilities: no such file or directory",
        "NVIDIA kernel driver makes",
        "load the NVIDIA",
    ),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/sys/class/kfd/kfd'", "amdgpu makes", "load the kernel"),
    (
        "open /sys/fs/acme: no such file or directory",
        "does not exist in container main",
        "put /sys/fs/acme on a volume",
    ),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB", "memory of its device", "use less"),
    ("RESOURCE_EXHAUSTED: Out of memory allocating 8589934592 bytes", "memory of its device", "use less"),
    ("RuntimeError: XPU out of memory", "memory of its device", "use less"),
    ("ERROR: Unexpected bus error encountered in worker", "/dev/shm", "emptyDir"),
    ("CUDA driver version is insufficient for CUDA runtime version", "older than image vllm:1", "upgrade"),
    ("no kernel image is available for execution on the device", "not built for", ""),
    ("RuntimeError: No CUDA GPUs are available", "asks for no device", "a claim"),
    ("hsa_init failed: HSA_STATUS_ERROR_OUT_OF_RESOURCES", "asks for no device", "a claim"),
    ("ZE_RESULT_ERROR_UNINITIALIZED", "asks for no device", "a claim"),
    ("The TPU is already in use by process with pid 7", "one at a time", "end the process"),
    ("uncorrectable ECC error encountered", "is broken", "reset or replace"),
    ("ncclSystemError: System call failed", "NCCL cannot use the network", "NCCL_SOCKET_IFNAME"),
    ("ibv_reg_mr failed: Cannot allocate memory", "lock enough memory", "IPC_LOCK"),
    ("EAL: Cannot get hugepage information", "no hugepages", "hugepages-2Mi"),
    ("open /dev/kfd: permission denied", "asks for no device|may not open", "a claim|supplementalGroups"),
    ("error unmarshaling checkpoint: checkpoint is corrupted", "damaged", r"checkpoint\.json"),
    ("chroot: failed to run command 'sh'", "driver root", "nvidiaDriverRoot"),
    ("AccessDenied: The AWS Access Key Id you provided has expired", "have expired", "renew the credentials"),
    ("403 Forbidden: api key expired", "have expired", "renew the credentials"),
    ("AccessDenied: Access Denied", "do not allow", "let the account"),
    ("SSLError: CERTIFICATE_VERIFY_FAILED", "does not trust", "certificate"),
    ('pods is forbidden: User "sa:x" cannot list resource "pods"', "", "let sa:x list"),
    ('no matches for kind "PodGroup" in version "x/v1"', "not installed", "CustomResourceDefinition"),
    ("botocore.exceptions.NoCredentialsError: Unable to locate credentials", "no credentials", "credentials"),
    ("is not authorized to perform: s3:GetObject", "do not allow s3:GetObject", "allow s3:GetObject"),
    ('FATAL: password authentication failed for user "app"', "password of user app", "correct the password"),
    ("wandb: ERROR api_key not configured (no-tty)", "missing or wrong", "Secret"),
    ("dial tcp: lookup redis on 10.96.0.10:53: no such host", "Service ml/redis does not exist", "create the Service"),
    ("Could not resolve host: files.example.org", "files.example.org is not resolved", "check the name"),
    ("connect ECONNREFUSED 127.0.0.1:5432", "port 5432 in its own pod", "port 5432"),
    ("bind: permission denied", "below 1024", "NET_BIND_SERVICE"),
    ("listen tcp :8080: bind: address already in use", "", "only one process of container main"),
    ("java.lang.OutOfMemoryError: Java heap space", "heap", "from 16Gi to 32Gi"),
    ("std::bad_alloc", "limit of 16Gi", "from 16Gi to 32Gi"),
    ("libGL.so.1: cannot open shared object file", "lacks libGL.so.1", "libGL.so.1"),
    ("ModuleNotFoundError: No module named 'flash_attn'", "module flash_attn", "flash_attn"),
    ("OSError: [Errno 30] Read-only file system: '/cache'", "may not write to /cache", "emptyDir volume at /cache"),
    ("PermissionError: [Errno 13] Permission denied: '/data/out'", "/data/out", "fsGroup"),
    ("OSError: [Errno 28] No space left on device: '/data/x'", "with /data/x is full", "free space at /data/x"),
    ("RuntimeError: can't start new thread", "pids limit", "podPidsLimit"),
    ("Error -2 connecting to redis:6379. Name or service not known.", "Service ml/redis does not exist", "create the"),
    ("Can't connect to MySQL server on 'mysql' ([Errno 111] Connection refused)", "Service ml/mysql", "create the"),
    ("/bin/sh: 1: /entrypoint.sh: not found", "/entrypoint.sh is not in image vllm:1", "correct the command"),
    ("foo is not a local folder and is not a valid model identifier", "neither a directory", "correct the name"),
    ("Transformers does not recognize this architecture", "too old for the model", "newer image"),
    ("Host key verification failed.", "SSH key", "SSH key"),
    ("(16) must be divisible by tensor parallel size (3).", "cannot be split", "divides it"),
    ("KeyError: 'MODEL_PATH'", "MODEL_PATH is not set", "MODEL_PATH"),
    ("vllm: error: unrecognized arguments: --foo", "flag --foo", "remove flag --foo"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/models/x'", "/models/x does not exist", "/models/x"),
]
REPORTED = [
    ("unresolvable CDI devices k8s.gpu.nvidia.com/claim=x", "CDI files", "delete the pod"),
    (
        'cannot find a network-attachment-definition (net) in namespace (ml): "net" not found',
        "ml/net does not",
        "create",
    ),
    ("no IP addresses available in range set: 10.0.0.1-10.0.0.254", "addresses for pods of node n1", "enlarge"),
    ("container init was OOM-killed (memory limit too low?)", "16Gi is too small", "from 16Gi to 32Gi"),
    ('cannot load seccomp profile "/var/lib/kubelet/seccomp/a.json"', "a.json is not on node n1", "RuntimeDefault"),
    ("apparmor failed to apply profile: profile k8s-x not loaded", "AppArmor", "appArmorProfile"),
    ('name "main_serve_ml_p1_0" is reserved for "abc"', "still has an earlier attempt", "restart it"),
    ('exec: "run.sh": executable file not found in $PATH', "", "run.sh is not in its image"),
    ("exec /app: exec format error", "another CPU architecture", "built for"),
    ("mount: bad option; for several filesystems you might need a helper program", "mount helper", "nfs-common"),
    ("mount.nfs: access denied by server while mounting nas:/x", "does not export nas:/x", "export nas:/x"),
    ("Setting volume ownership for pod is taking longer than expected", "owner of every file", "OnRootMismatch"),
    (
        'error gathering device information while adding custom device "/dev/nvidia3": no such file or directory',
        "/dev/nvidia3 does not",
        "kernel driver",
    ),
    ("requirement error: unsatisfied condition: cuda>=12.6", "needs cuda>=12.6", "upgrade"),
]
PREPARED = [
    (
        "requested device gpu-2 is already allocated to different claim 4e8506b5-5b9b-4963-a153-7f060ecd64b3",
        "no longer exists",
        "restart the plugin",
    ),
    ("error writing CDI spec file: no space left on device", "cannot write its CDI files", "/var/run/cdi"),
    ("failed to bind to vfio-pci: IOMMU is not enabled", "passed through", "intel_iommu=on"),
    ("rdma subsystem is in shared netns mode", "shared mode", "netns exclusive"),
    ("device is in use by process 4132", "still uses the device", "end the process"),
    ("unable to set exclusive compute mode: Insufficient Permissions", "may not change the mode", "privileged"),
    ("device gpu-7 not found", "no longer has that device", "restart the plugin"),
    ("rpc error: code = DeadlineExceeded desc = context deadline exceeded", "", "restart the plugin"),
]


def check(table: Sequence[Saying], message: str, means: str, remedy: str) -> None:
    found = meaning_of(table, message, facts(plugin="the plugin"))
    assert found is not None
    assert re.search(means, found.text), found
    assert not remedy or re.search(remedy, found.advice[0]), found


@pytest.mark.parametrize(("message", "means", "remedy"), SAID)
def test_last_messages_of_programs_are_understood(message: str, means: str, remedy: str) -> None:
    check(PROGRAMS, message, means, remedy)


@pytest.mark.parametrize(("message", "means", "remedy"), REPORTED)
def test_reports_of_nodes_are_understood(message: str, means: str, remedy: str) -> None:
    check(NODES, message, means, remedy)


@pytest.mark.parametrize(("message", "means", "remedy"), PREPARED)
def test_reports_of_drivers_are_understood(message: str, means: str, remedy: str) -> None:
    check(DRIVERS, message, means, remedy)


@pytest.mark.parametrize(
    "message", ["", "loss is nan", "Segmentation fault", "panic: runtime error: index out of range"]
)
def test_a_message_that_is_not_known_has_no_meaning(message: str) -> None:
    assert meaning_of(PROGRAMS, message, facts()) is None


@pytest.mark.parametrize("saying", [*PROGRAMS, *NODES, *SLOW, *DRIVERS], ids=lambda saying: saying.pattern[:40])
def test_every_name_in_a_text_is_a_group_of_its_pattern_or_a_fact(saying: Saying) -> None:
    groups = {name.rstrip("0123456789") for name in re.compile(saying.pattern).groupindex}
    for text in (*saying.means, *saying.remedies):
        names = set(re.findall(r"(?<!\{)\{(\w+)\}", text))
        assert names <= groups | GIVEN | set(FACTS), text


def test_a_long_message_is_shown_from_where_it_matters() -> None:
    said = "Traceback (most recent call last): " + "frame " * 80 + "CUDA out of memory. Tried to allocate 2 GiB"
    found = meaning_of(PROGRAMS, said, facts())
    assert found is not None
    assert "CUDA out of memory" in found.shown
    assert len(found.shown) <= 200
