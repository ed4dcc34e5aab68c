"""What drivers report of claims that they cannot prepare. The first match counts."""

from __future__ import annotations

from allot.core.advice.explain.messages.table import Saying

_RESTART = "restart {plugin}, and delete the pod, so that its devices are prepared again"

DRIVERS: tuple[Saying, ...] = (
    Saying(
        r"device (?P<device_name>\S+) is already (?:allocated|prepared|in use|reserved)\D{0,40}claim:? ?(?P<uid>[0-9a-f-]{36}|[\w.-]+/[\w.-]+)"
        r"|already (?:allocated|prepared|in use|reserved) (?:to|for|by) .{0,40}?(?P<uid1>[0-9a-f]{8}-[0-9a-f-]{27})",
        (
            "claim {stale} no longer exists, so the driver still keeps the device prepared for a claim that is gone",
            "the driver has prepared it for claim {rival}",
        ),
        (
            "restart {plugin}: it then drops the claims that no longer exist; if not, remove claim {stale} from its checkpoint.json there, and check that no process "
            "still uses the device",
            "delete the pod, if it may use another device: {free}",
            "delete the pod of claim {rival}, or this one, so that the device is prepared for one of them",
        ),
    ),
    Saying(
        r"checkpoint.*corrupt|corrupt\S* checkpoint|unmarshal+ing checkpoint|checkpoint.*(?:checksum|unexpected end of JSON)",
        ("the file in which the driver keeps its prepared claims is damaged",),
        (
            "on node {node}, move checkpoint.json of /var/lib/kubelet/plugins/{driver} away, and restart {plugin}: it then starts with a new one (drain the pods with "
            "its devices first)",
        ),
    ),
    Saying(
        r"(?:unknown|invalid|unsupported) time-?slice interval:? \"?(?P<value>\w+)\"?|interval.{0,20}(?:invalid|unknown|unsupported).{0,10}\"?(?P<value1>\w+)?\"?",
        (
            "the interval {value} of {place} is none of Default, Short, Medium and Long",
            "the interval of {place} is none of Default, Short, Medium and Long",
        ),
        ("write interval: Long (or Default, Short, Medium) in the configuration of {place}, and recreate the pod",),
    ),
    Saying(
        r"no kind \"(?P<kind>[^\"]+)\" is registered for version \"(?P<version>[^\"]+)\"|no kind \"(?P<kind1>[^\"]+)\"",
        (
            "the driver does not know the configuration {kind} of {version}",
            "the driver does not know the configuration {kind}",
        ),
        (
            "correct apiVersion and kind of the configuration (parameters) in {place}, as the driver's version documents them, and recreate the pod",
        ),
    ),
    Saying(
        r"network-attachment-definitions\S* \"(?P<network>[^\"]+)\" not found|cannot find (?:a )?network-attachment-definition \((?P<network1>[^)]+)\)",
        (
            "NetworkAttachmentDefinition {network} is in namespace {network_elsewhere}, not in the pod's namespace {namespace}",
            "NetworkAttachmentDefinition {namespace}/{network} does not exist (did you mean {network_meant}?)",
            "NetworkAttachmentDefinition {namespace}/{network} does not exist",
        ),
        (
            "set netAttachDefNamespace: {network_elsewhere} in the configuration of {place}, and recreate the pod; or create NetworkAttachmentDefinition "
            "{namespace}/{network}, a copy of it",
            "name {network_meant} instead of {network} in the configuration of {place}, and recreate the pod",
            "create NetworkAttachmentDefinition {namespace}/{network}, which {place} names",
        ),
    ),
    Saying(
        r"\b(?P<kind>configmap|secret|serviceaccount|persistentvolumeclaim)s? \"(?P<missing>[^\"]+)\" not found",
        ("{kind} {namespace}/{missing}, which {place} is configured with, does not exist",),
        ("create {kind} {missing} in namespace {namespace}, or name another one in the configuration of {place}",),
    ),
    Saying(
        r"but (?:the )?node has (?P<count>\d+)\b.{0,60}\ball\b|\ball\b.{0,80}\b(?:node|host|machine) has (?P<count1>\d+)",
        ("{place} asks for {number} of the {count}", "the claim has {number} of the {count}"),
        ("ask for allocationMode: All (here count: {count}) instead of {number} in {place}, and recreate the pod",),
    ),
    Saying(
        r"\ball (?:\w+ )?(?:chips|devices|GPUs|TPUs|cores) (?:of|on|in) (?:a|the|one|its) (?:node|host|machine)",
        ("{place} asks for {number}", "the claim has {number}"),
        ("ask for allocationMode: All instead of {number} in {place}, and recreate the pod",),
    ),
    Saying(
        r"(?:must|has to|need(?:s)? to|can only|only) .{0,40}?(?:request|allocat|use|be|claim|prepare)\S* .{0,30}?(?P<count>\d+) (?:of )?(?P<what>chips?|devices?|GPUs?|TPUs?|cores?|NICs?|VFs?)",
        ("the driver prepares {count} {what} at a time, and the claim has {number}",),
        ("ask for count: {count} in {place}, and recreate the pod",),
    ),
    Saying(
        r"(?:more than|at most|up to|maximum of) (?P<count>\d+|one|a single) (?:devices?|chips?|GPUs?|NICs?|requests?|allocations?)|(?P<count1>only one|a single) (?:device|claim|request)",
        ("the driver prepares {count} of them for a claim, and this one has {number}",),
        ("ask for fewer devices in {place}, or for each in a claim of its own, and recreate the pod",),
    ),
    Saying(
        r"(?:in use|used|held|busy) by (?:process|pid)|device or resource busy|is busy",
        ("a process on node {node} still uses {device}", "a process on node {node} still uses the device"),
        (
            "end the process that still uses the device on node {node} (nvidia-smi, fuser -v /dev/...): the kubelet then retries by itself",
        ),
    ),
    Saying(
        r"compute mode|Insufficient Permissions",
        ("the driver's plugin may not change the mode of the device",),
        ("run {plugin} as privileged, as the driver's chart does by default",),
    ),
    Saying(
        r"(?:unsupported|invalid|not a valid) (?:topology|shape|count|number of|combination)|topology .{0,30}(?:not supported|invalid|unsupported)"
        r"|(?:chips?|devices?) .{0,40}(?:not contiguous|not adjacent|contiguous)",
        ("the driver does not prepare this number or shape of devices: the claim has {number}",),
        (
            "ask for a count that the driver accepts in {place} (all devices of a node, or a power of two), and recreate the pod",
        ),
    ),
    Saying(
        r"IOMMU|vfio|driver_override|unbind",
        ("the device cannot be passed through on node {node}",),
        (
            "enable the IOMMU of node {node} in its firmware and kernel (intel_iommu=on or amd_iommu=on), and load vfio-pci",
        ),
    ),
    Saying(
        r"rdma.{0,60}(?:shared|netns|exclusive)",
        ("RDMA devices of node {node} cannot be moved into a pod while its RDMA system is in shared mode",),
        ("set the RDMA system of node {node} to exclusive: rdma system set netns exclusive, before any pod uses it",),
    ),
    Saying(
        r"(?:Link|interface|netdev|netdevice) \"?(?P<interface>[\w.-]*)\"? ?(?:not found|does not exist)|no such (?:network )?(?:interface|device)",
        ("the network interface is no longer on node {node}: another pod has it, or its name has changed",),
        (_RESTART,),
    ),
    Saying(
        r"sriov_numvfs|(?:no|not enough|all) VFs?\b.{0,30}(?:available|free|use)|failed to (?:create|configure|enable) VF",
        ("the network card has no free virtual function",),
        ("create more virtual functions on node {node} (sriov_numvfs, or numVfs of its SriovNetworkNodePolicy)",),
    ),
    Saying(
        r"MIG.{0,60}(?:not enabled|disabled|in use|insufficient|no (?:free|space)|placement)|(?:GPU|compute) instance.{0,60}(?:in use|insufficient|fail)",
        ("the GPU cannot be partitioned as asked now",),
        (
            "check on node {node} which processes and MIG instances use the GPU (nvidia-smi mig -lgi), remove those of no claim, and delete the pod",
        ),
    ),
    Saying(
        r"(?:write|create|writing|creating).{0,30}CDI.{0,80}(?:read-only|no space|denied)",
        ("the driver cannot write its CDI files on node {node}",),
        ("make /var/run/cdi of node {node} writable for {plugin}, and free disk space there",),
    ),
    Saying(
        r"(?:requested )?(?:device|allocatable)s? .{0,60}(?:not found|does not exist|is not allocatable|unknown|not allocatable)",
        ("the driver on node {node} no longer has that device",),
        (_RESTART,),
    ),
    Saying(
        r"hugepages?",
        ("node {node} does not have enough hugepages",),
        ("reserve more hugepages on node {node} (vm.nr_hugepages), or ask for less in {place}",),
    ),
    Saying(
        r"exclusive cpus?|cpuset|cpus? .{0,40}(?:not available|already (?:assigned|in use))|CPU manager",
        ("the CPUs of the claim are not free on node {node}",),
        (
            "set cpuManagerPolicy: none for the kubelet of node {node}, so that it does not give out the CPUs that the driver does, and delete the pod",
        ),
    ),
    Saying(
        r"is forbidden: User \"(?P<who>[^\"]+)\" cannot (?P<what>[^:]+)",
        (),
        ("let {who} {what} (RBAC)",),
    ),
    Saying(
        r"driver/library version mismatch|LIB_RM_VERSION_MISMATCH",
        (),
        ("reboot node {node}, or reload its NVIDIA kernel modules: their version differs from that of the libraries",),
    ),
    Saying(
        r"fallen off the bus|GPU is lost|\bXid\b|uncorrectable ECC|GPU_IS_LOST",
        ("{device} is broken",),
        (
            "reset or replace the device on node {node}, and delete the pod, so that it gets another one: {free}",
            "reset or replace the device on node {node}",
        ),
    ),
    Saying(
        r"Error while dialing|dra\.sock|connection refused|transport is closing|Unavailable desc",
        ("the plugin of driver {driver} on node {node} does not answer",),
        ("restart {plugin}: the kubelet then retries by itself",),
    ),
    Saying(
        r"context deadline exceeded|DeadlineExceeded",
        ("the plugin of driver {driver} on node {node} did not finish in time",),
        ("restart {plugin} if it hangs: the kubelet then retries by itself",),
    ),
)
