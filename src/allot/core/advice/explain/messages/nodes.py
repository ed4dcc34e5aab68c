"""What kubelets, container runtimes and network plugins report of pods that they cannot start. The first match counts."""

from __future__ import annotations

from allot.core.advice.explain.messages.table import Saying

NODES: tuple[Saying, ...] = (
    Saying(
        r"claim .{0,60}already used by container (?P<other>[\w.-]+)|claim.{0,40} (?:can|may) (?:only )?be used by (?:only )?(?:one|a single) container",
        (
            "container {container} names entry {entry} in its resources.claims, as {fellow} does, and this driver gives a claim to one container only",
        ),
        (
            "give container {container} a claim of its own (another entry in spec.resourceClaims of the pod), or drop {entry} from its resources.claims",
        ),
    ),
    Saying(
        r"using host network can ?not claim host devices|host network.*(?:claim|network device)",
        ("the pod has hostNetwork: true, and a network device of a claim is moved into the pod's own network",),
        (
            "remove hostNetwork: true from the pod, and recreate it",
            "drop {requests} from {place} and use the host's network, and recreate the pod",
        ),
    ),
    Saying(
        r"runAsNonRoot and image (?:will run as root|has non-numeric user)",
        (),
        (
            "set securityContext.runAsUser to a number other than 0 in the pod, or use an image that does not run as root",
        ),
    ),
    Saying(
        r"no runtime for \"(?P<handler>[^\"]+)\" is configured|RuntimeHandler \"(?P<handler1>[^\"]+)\" not supported",
        ("{runtime_installer}",),
        (
            "{runtime_installed}",
            "configure the handler of the pod's RuntimeClass in the container runtime of node {node}, or run the pod on a node that has it",
        ),
    ),
    Saying(
        r"driver/library version mismatch|LIB_RM_VERSION_MISMATCH",
        (),
        ("reboot node {node}, or reload its NVIDIA kernel modules: their version differs from that of the libraries",),
    ),
    Saying(
        r"nvml error: driver not loaded|libnvidia-ml\.so\S*: cannot open shared object|nvidia-container-cli: initialization error",
        (),
        ("load the NVIDIA driver of node {node}: its kernel module is not loaded",),
    ),
    Saying(
        r"requirement error: unsatisfied condition: (?P<condition>[^,;\"]+)",
        (
            "image {image} needs {condition}, and the NVIDIA driver {driver_version} of node {node} supports CUDA {cuda} at most",
            "image {image} needs {condition}, which the NVIDIA driver of node {node} does not support",
        ),
        (
            "use an image in the pod that is built for CUDA {cuda} or older",
            "upgrade the NVIDIA driver of node {node}, or use an image in the pod that is built for an older CUDA",
        ),
    ),
    Saying(
        r"driver name (?P<csi>\S+) not found in the list of registered CSI drivers|CSINode \S+ does not contain driver (?P<csi1>\S+)",
        (),
        ("check that the pods of CSI driver {csi} run on node {node}: it is not registered with the kubelet there",),
    ),
    Saying(
        r"hostPath type check failed: (?P<path>\S+) is not",
        (),
        ("create {path} on node {node}, or correct the hostPath volume of the pod",),
    ),
    # --- devices ---
    Saying(
        r"unresolvable CDI devices? (?P<cdi>[^\s:]+(?:=[^\s:]+)?)?",
        (
            "the driver's CDI files for the devices are missing on node {node} since its reboot at {rebooted}",
            "the driver's CDI files for the devices are missing on node {node}",
        ),
        (
            "delete the pod, so that its devices are prepared again: a reboot may have removed the driver's CDI files",
            "restart the plugin of the driver on node {node}, if it writes its CDI files again when it starts",
        ),
    ),
    Saying(
        r"(?:device information|adding (?:custom )?device|stat|lstat|open).{0,60}?\"?(?P<path>/dev/[\w/.-]+)\"?.{0,10}no such (?:file|device)",
        (
            "{path} does not exist on node {node} since its reboot at {rebooted}: its kernel driver is not loaded, or its device is gone",
            "{path} does not exist on node {node}: its device or its kernel driver is gone",
        ),
        (
            "load the kernel driver of the device on node {node}, or cordon the node, and delete the pod, so that its devices are prepared again",
        ),
    ),
    Saying(
        r"(?:Link|interface|netdev|netdevice) \"?(?P<interface>[\w.-]*)\"? ?(?:not found|does not exist)|no such network interface",
        (
            "the network interface of the claim is no longer on node {node}: another pod has it, or its name has changed",
        ),
        (
            "delete the pod, so that it gets an interface that is there, and restart the plugin of driver {driver} on node {node}, so that it publishes the present ones",
        ),
    ),
    Saying(
        r"containerd-shim-(?P<handler>[\w-]+?)(?:-v\d+)?: (?:no such file|executable)|shim.*executable file not found",
        (
            "the runtime {handler} of its RuntimeClass is not installed on node {node}",
            "the runtime of its RuntimeClass is not installed on node {node}",
        ),
        (
            "install that runtime on node {node}, or let the scheduling.nodeSelector of the RuntimeClass keep the pod on nodes that have it",
        ),
    ),
    Saying(
        r"sriov.{0,200}\b(?P<function>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])|SRIOV-CNI failed",
        (
            "the virtual function {function} cannot be moved into the pod: it is bound to another driver, or gone",
            "a virtual function cannot be moved into the pod",
        ),
        (
            "bind the virtual functions of node {node} to their network driver (not vfio-pci) in the SR-IOV configuration, and delete the pod",
        ),
    ),
    # --- networks ---
    Saying(
        r"cannot find (?:a )?network-attachment-definition \((?P<network>[^)]+)\)|network-attachment-definitions\S* \"(?P<network1>[^\"]+)\" not found",
        (
            "NetworkAttachmentDefinition {network} is in namespace {network_elsewhere}, not in the pod's namespace {namespace}",
            "NetworkAttachmentDefinition {namespace}/{network} does not exist (did you mean {network_meant}?)",
            "NetworkAttachmentDefinition {namespace}/{network} does not exist",
        ),
        (
            "name it {network_elsewhere}/{network} in annotation k8s.v1.cni.cncf.io/networks of the pod, or copy it to namespace {namespace}",
            "name {network_meant} instead of {network} in annotation k8s.v1.cni.cncf.io/networks of the pod",
            "create NetworkAttachmentDefinition {namespace}/{network}, or drop it from annotation k8s.v1.cni.cncf.io/networks of the pod",
        ),
    ),
    Saying(
        r"no IP addresses available|no available IP|IP (?:pool|range).*(?:exhausted|full)|failed to (?:allocate|assign) (?:for range|an? IP)|out of IP"
        r"|InsufficientFreeAddresses|no more IPs",
        ("all addresses for pods of node {node} are in use",),
        (
            "enlarge the address range of node {node} (podCIDR, IPAM pool or subnet), or run fewer pods there; addresses of pods that are gone may be left in "
            "/var/lib/cni/networks",
        ),
    ),
    # --- the container runtime ---
    Saying(
        r"container init was OOM-killed|memory limit too low|minimum memory limit|memory\.max.*(?:invalid|busy)|limit .* too low",
        (
            "the memory limit of {limit} is too small even to start it",
            "a memory limit is too small even to start a container",
        ),
        (
            "raise the memory limit of container {container} of the pod {more_memory}",
            "raise the memory limits of the pod",
        ),
    ),
    Saying(
        r"seccomp.{0,60}(?:\"|\s)(?P<path>/[\w./-]+\.json)|seccomp profile",
        ("its seccomp profile {path} is not on node {node}", "its seccomp profile is not on node {node}"),
        (
            "put {path} on node {node}, or set seccompProfile: {{type: RuntimeDefault}} in the pod",
            "set seccompProfile: {{type: RuntimeDefault}} in the pod",
        ),
    ),
    Saying(
        r"apparmor.{0,60}profile[: ]+\"?(?P<profile>[\w./-]+)\"?|apparmor",
        ("its AppArmor profile {profile} is not loaded on node {node}", "AppArmor refuses it on node {node}"),
        (
            "load AppArmor profile {profile} on node {node}, or set appArmorProfile: {{type: RuntimeDefault}} in the pod",
            "set appArmorProfile: {{type: RuntimeDefault}} in the pod",
        ),
    ),
    Saying(
        r"name \"(?P<name>[^\"]+)\" is reserved for",
        ("the container runtime of node {node} still has an earlier attempt with this name: it is slow, or hangs",),
        (
            "see why the container runtime of node {node} is slow (disk, load), and restart it if it hangs (systemctl restart containerd)",
        ),
    ),
    Saying(
        r"exec(?: failed)?:? \"(?P<command>[^\"]+)\"[^:]*: permission denied|exec: \"(?P<command1>[^\"]+)\": permission denied",
        (),
        (
            "make {command} executable in image {image}, or correct the command of container {container} of the pod",
            "make {command} executable in its image, or correct the command of the pod",
        ),
    ),
    Saying(
        r"exec(?: failed)?:? \"(?P<command>[^\"]+)\"[^:]*: (?:executable file not found|no such file|stat [^:]+: no such file)",
        (),
        ("correct the command of the container: {command} is not in its image, or cannot be executed",),
    ),
    Saying(
        r"exec format error",
        (
            "image {image} is built for another CPU architecture than {architecture}, which node {node} has",
            "its image is built for another CPU architecture than node {node} has",
        ),
        (
            "use an image for container {container} of the pod that is built for {architecture}",
            "use an image that is built for the architecture of node {node}",
        ),
    ),
    Saying(
        r"trying to mount a directory (?:on)?to a file|not a directory.*mount|mount.*not a directory",
        ("a volume mounts a directory where the image has a file, or the other way round",),
        ("mount the single file with subPath in the pod, or another mountPath",),
    ),
    Saying(
        r"mkdirat? (?P<path>\S+?):? read-only file ?system|(?P<path1>/[\w./-]+)\"?: read-only file ?system",
        ("{path} is on a file system that is read-only",),
        ("choose a mountPath in the pod that does not lie in a read-only volume or image directory ({path})",),
    ),
    Saying(r"no space left on device", (), ("free disk space on node {node}",)),
    Saying(
        r"user namespaces?.{0,40}(?:not supported|unsupported|fail)",
        ("node {node} does not support user namespaces",),
        ("remove hostUsers: false from the pod, or run it on a node whose runtime and kernel support user namespaces",),
    ),
    Saying(
        r"lifecycle hook \(\[?(?P<hook>[^\])]+)\]?\)|PostStartHook",
        (
            "the postStart hook {hook} of container {container} fails, so the kubelet ends the container",
            "a postStart hook fails",
        ),
        (
            "fix the hook {hook} in the pod, or drop lifecycle.postStart of container {container}: what it needs may not be up yet when the container starts",
            "fix or drop lifecycle.postStart in the pod",
        ),
    ),
    # --- volumes ---
    Saying(
        r"[Ss]etting volume ownership.*|VolumePermissionChangeInProgress|fsGroup",
        ("the kubelet changes the owner of every file of the volume (fsGroup), which takes long with many files",),
        ("set securityContext.fsGroupChangePolicy: OnRootMismatch in the pod",),
    ),
    Saying(
        r"bad option;.*helper program|mount\.(?P<helper>\w+)(?:: not found| helper)|unknown filesystem type '(?P<helper1>\w+)'",
        ("node {node} cannot mount this type of file system: its mount helper is not installed",),
        ("install the client of the file system (nfs-common, ceph-common, cifs-utils) on node {node}",),
    ),
    Saying(
        r"mount\.nfs: access denied by server while mounting (?P<export>\S+)",
        ("the NFS server does not export {export} to node {node}",),
        ("export {export} to node {node} on the NFS server",),
    ),
    Saying(
        r"mount\.nfs: (?:mounting )?(?P<export>\S+) failed, reason given by server: No such file",
        ("the NFS server has no directory {export}",),
        ("create {export} on the NFS server, or correct the path of the volume",),
    ),
    Saying(
        r"mount\.nfs.*(?:timed out|refused|no route)|Connection timed out.*mount",
        ("the NFS server does not answer node {node}",),
        ("check that the NFS server of the volume runs, and that node {node} reaches its port 2049",),
    ),
    Saying(
        r"secretproviderclass(?:es)?\S* \"?(?P<class>[\w.-]+)\"? not found|failed to get secretproviderclass \S*?(?P<class1>[\w.-]+),",
        ("SecretProviderClass {namespace}/{class} does not exist",),
        ("create SecretProviderClass {namespace}/{class}, or correct its name in the volume of the pod",),
    ),
    Saying(
        r"volume \\?\"?(?P<volume>[\w.-]+)\\?\"? ?: .*(?:code = NotFound|not found|does not exist|InvalidVolume)",
        ("the disk {disk} of PersistentVolume {volume} (PersistentVolumeClaim {volume_claim}) no longer exists",),
        (
            "restore the disk {disk} from a snapshot, or recreate PersistentVolumeClaim {volume_claim} with a new volume: its data is lost",
        ),
    ),
    Saying(
        r"'fsck' found errors|wrong fs type|bad superblock|structure needs cleaning|fsck found errors|can't read superblock",
        ("the file system of the volume is damaged, or of another type than the volume says",),
        ("repair the file system of the volume (fsck) where no pod uses it, or correct its fsType",),
    ),
    Saying(
        r"subPath.{0,60}(?:no such file|not a directory|failed to prepare)|failed to (?:prepare|create) subPath",
        ("a subPath of the pod's volumes cannot be mounted",),
        ("correct the subPath in the pod, or create it in the volume",),
    ),
    Saying(
        r"unmounted volumes=\[(?P<volumes>[^\]]+)\].*(?:timed out|deadline)",
        ("volume {volumes} is not attached or mounted in time",),
        (
            "check the pods of the CSI driver of volume {volumes} on node {node}, and its VolumeAttachment: kubectl get volumeattachments",
        ),
    ),
)

# If nothing more is known.
SLOW: tuple[Saying, ...] = (
    Saying(
        r"context deadline exceeded|DeadlineExceeded",
        ("the container runtime of node {node} does not answer in time",),
        ("check the container runtime and the disk of node {node}: journalctl -u containerd",),
    ),
)
