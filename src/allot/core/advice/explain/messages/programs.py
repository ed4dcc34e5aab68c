"""Last messages of programs: frameworks on accelerators, clients of Services and object stores, kubelet plugins. The first match counts."""

from __future__ import annotations

from allot.core.advice.explain.messages.table import Saying

_CREDENTIALS = "give container {container} of the pod credentials: a Secret as environment variables, or a ServiceAccount that the store trusts"
_CLAIMS = "add claims: [{missing_claims}] to the resources of container {container} of the pod"

ACCELERATORS: tuple[Saying, ...] = (
    Saying(
        r"max(?:imum)? (?:seq(?:uence)?|model) len\S* .{0,20}(?:is )?larger than .*KV cache|No available memory for the cache blocks"
        r"|KV cache .*(?:is )?larger than the available",
        (
            "the memory of {device}, which {place} asks for, is too small for the KV cache beside the model",
            "the memory of its device is too small for the KV cache beside the model",
        ),
        (
            "lower --max-model-len of container {container} of the pod, or raise its --gpu-memory-utilization",
            "ask for {larger} in {place}",
        ),
    ),
    Saying(
        r"NVRM: Xid|\bXid\b.*\b\d{2,3}\b|uncorrectable ECC|ECC_UNCORRECTABLE|fallen off the bus|GPU is lost|cudaErrorECCUncorrectable"
        r"|hipErrorECCNotCorrectable|GPU requires reset|GPU_IS_LOST",
        ("{device} is broken", "its device is broken"),
        (
            "create {taint_rule}, so that the pod's replacement gets another device, and reset or replace this one",
            "delete pod {self}, so that its replacement may get another device",
        ),
    ),
    Saying(
        r"(?:CUDA|HIP|XPU|MPS backend) out of memory|OutOfMemoryError: (?:CUDA|HIP|XPU)|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
        r"|cudaMalloc failed: out of memory|hipErrorOutOfMemory|(?:ZE|UR|PI)_(?:RESULT_)?ERROR_OUT_OF_(?:DEVICE_)?(?:MEMORY|RESOURCES)"
        r"|out of device memory|RESOURCE_EXHAUSTED.*(?:memory|hbm|allocat)|ResourceExhaustedError|Ran out of memory in memory space hbm"
        r"|CUBLAS_STATUS_ALLOC_FAILED|unable to allocate \S+ buffer|Free memory on device .*less than desired",
        (
            "the memory of {device}, which {place} asks for and {sharers} also uses, is used up",
            "the memory of {device}, which {place} asks for, is too small for what container {container} loads",
            "the memory of its device is too small for it; its memory limit is another thing",
        ),
        (
            "ask for {larger} in {place}",
            "ask for devices with more memory in {place}, or spread the model over more of them",
            "use less of the device's memory in container {container} of the pod: a smaller or quantized model, a smaller batch or context",
        ),
    ),
    Saying(
        r"bus error|insufficient shared memory|\(shm\)|/dev/shm\b.*(?:no space|too small|failed|error)|no space left.*/dev/shm"
        r"|shared memory segment|unable to allocate shared memory|shm_open|size of /dev/shm|ulimit: .*shared",
        ("/dev/shm of the container is too small: it has 64Mi unless a volume is mounted there",),
        (
            "mount an emptyDir volume with medium: Memory and sizeLimit: 8Gi at /dev/shm in container {container} of the pod, and count it in its "
            "memory limit",
        ),
    ),
    Saying(
        r"driver version is insufficient for CUDA runtime|NVIDIA driver on your system is too old|InsufficientDriver|unsupported display driver"
        r"|system has unsupported display driver|forward compatibility was attempted|unsupported toolchain|unsatisfied condition: cuda"
        r"|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        (
            "the NVIDIA driver {driver_version} of node {node} supports CUDA {cuda} at most, and image {image} needs a newer one",
            "the NVIDIA driver of node {node} is older than image {image} needs",
        ),
        (
            "use an image for container {container} of the pod that is built for CUDA {cuda} or older",
            "upgrade the NVIDIA driver of node {node}",
            "use an image for container {container} of the pod that is built for an older CUDA",
        ),
    ),
    Saying(
        r"FlashAttention only supports|for GPU arch|only supports? (?:Ampere|Hopper|Volta|Turing)|no kernel image is available|is not compatible with the current PyTorch|NoBinaryForGpu|invalid device function|unsupported gpu architecture"
        r"|no kernel image|SM\d+ (?:is )?not supported|Bfloat16 is only supported on GPUs with compute capability",
        (
            "image {image} is not built for {product}, which is what the pod got",
            "image {image} is not built for this model of device",
        ),
        (
            "use an image for container {container} of the pod that is built for {product}",
            "ask for another model of device in {place}, with a selector",
        ),
    ),
    Saying(
        r"(?P<heads>\(?\d+\)?) must be divisible by (?:the )?(?:tensor parallel size|tensor_model_parallel_size|world size|number of (?:GPUs|devices))\D*(?P<size>\d+)"
        r"|not divisible by (?:the )?(?:tensor parallel size|tp_size|world size|number of (?:GPUs|devices))",
        (
            "the model cannot be split over {size} devices (the claim has {number})",
            "the model cannot be split over that many devices",
        ),
        (
            "use a number of devices that divides it, 1, 2, 4 or 8: as count in {place}, and as tensor-parallel size of container {container} of the pod",
            "use a number of devices that divides it: as tensor-parallel size of container {container} of the pod, and as count in its claim",
        ),
    ),
    Saying(
        r"invalid device ordinal|(?:tensor|pipeline)[- _]parallel[- _]size\S* .*(?:greater|larger|more) than|world size .*(?:greater|larger|more) than"
        r"|requires? (?P<wanted>\d+) GPUs?.*(?:found|available|only)|not enough GPUs|CUDA_ERROR_INVALID_DEVICE|Duplicate GPU detected"
        r"|Number of (?:GPUs|devices) .*(?:less|smaller) than",
        ("it uses more devices than the {number} that its claim has", "it uses more devices than it has"),
        (
            "ask for count: {wanted} in {place}",
            "start container {container} of the pod with {number} as its number of devices (tensor-parallel size, processes per node), or raise count "
            "in {place}",
        ),
    ),
    Saying(
        r"CUDA-capable device\S* (?:is/)?are busy|is in use by process|cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE|already in use by (?:a |another )?process"
        r"|TPU is already in use|libtpu\S* .*(?:in use|lockfile|already)|libtpu_lockfile|/dev/(?:accel|vfio)\S*.*(?:busy|in use)"
        r"|Device or resource busy|exclusive[- ]process",
        (
            "{fellow} of the same pod names the same claim, and the device serves one process at a time",
            "{device} is also used by {sharers}, and serves one process at a time",
            "another process on node {node} still uses {device}, which serves one at a time",
            "another process still uses the device, which serves one at a time",
        ),
        (
            "let only one container of the pod name the claim: container {container} and {fellow} cannot share the device",
            "give {sharers} another device, or share it by MPS or time-slicing if the driver can",
            "end the process that still uses the device on node {node} (fuser -v /dev/accel* /dev/vfio/* /dev/nvidia*), and delete pod {self}",
        ),
    ),
    Saying(
        r"no CUDA-capable device|CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice|No CUDA GPUs are available|Found no NVIDIA driver"
        r"|libcuda\.so\S*: cannot open|Failed to infer device type|no NVIDIA GPU|No HIP GPUs|hipErrorNoDevice|no ROCm-capable device"
        r"|/dev/kfd|HSA_STATUS_ERROR|hsa_init|ZE_RESULT_ERROR_UNINITIALIZED|No XPU|no (?:level.?zero|xpu|sycl) (?:device|platform)"
        r"|No device of requested type|No (?:jellyfish|TPU) device|Failed to (?:initialize|get|find) TPU|TPU platform|no TPU"
        r"|NVIDIA-SMI has failed|couldn't communicate with the NVIDIA driver|Failed to initialize NVML|rocm-?smi.*(?:fail|error|no)|clinfo"
        r"|No RDMA device|no IB device|no GPU(?:s)? (?:found|detected|available)|libnvidia-ml\.so\S*: cannot open",
        (
            "container {container} names no claim, only {owner_of_claim} does, so it has no device",
            "pod {without_claims} asks for no device: it has no resourceClaims",
            "container {container} names {unknown_request}, which has only {known_requests}, so it gets no device",
            "container {container} does not see {device} of its claim",
            "it sees no device",
        ),
        (
            _CLAIMS,
            "give pod {without_claims} a claim: spec.resourceClaims with a ResourceClaimTemplate, and claims: in the resources of container {container}",
            'name request "{right_request}", or none, in resources.claims of container {container} of the pod',
            "check that image {image_with_claims} has the libraries of the device, and that nothing in it overrides CUDA_VISIBLE_DEVICES or the like; then delete pod "
            "{self}, so that its devices are prepared again",
        ),
    ),
    Saying(
        r"NCCL.*(?:timeout|timed out)|collective operation timeout|ncclRemoteError|Gloo connectFullMesh|connection reset by peer.*(?:nccl|rank)"
        r"|rendezvous.*(?:timed? ?out|closed|failed)|RendezvousTimeout|DistStoreError|Timed out .*waiting for clients|(?P<few>\d+)/\d+ clients joined"
        r"|StoreTimeout|socket timeout.*rank",
        ("a peer did not answer in time: it has not started, has ended, or is not reachable",),
        (
            "check that all its peers run and are reachable (their pods, MASTER_ADDR, the network between them): allot explain -A, and NCCL_DEBUG=INFO "
            "in the pod",
        ),
    ),
    Saying(
        r"ncclSystemError|unhandled system error|NET/(?:IB|Socket|Plugin).*(?:fail|error|no)|ncclInternalError|NET/OFI",
        ("NCCL cannot use the network of the pod",),
        (
            "set NCCL_SOCKET_IFNAME to an interface of the pod in container {container} of the pod, and check that its claim has the RDMA device that it "
            "needs (NCCL_DEBUG=INFO shows which)",
        ),
    ),
    Saying(
        r"ibv_(?:reg_mr|create_\w+).*(?:Cannot allocate|fail)|RLIMIT_MEMLOCK|memlock|max locked memory|mlock.*(?:fail|Cannot)",
        ("the container may not lock enough memory (memlock)",),
        (
            "add capability IPC_LOCK to the securityContext of container {container} of the pod, and set LimitMEMLOCK=infinity for the container runtime of node "
            "{node}",
        ),
    ),
    Saying(
        r"huge ?pages?|MAP_HUGETLB|hugetlbfs",
        ("the container has no hugepages",),
        (
            "ask for hugepages-2Mi in the requests and limits of container {container} of the pod, and mount an emptyDir volume with medium: HugePages",
        ),
    ),
    Saying(
        r"(?P<path>/dev/(?:nvidia|dri|kfd|vfio|infiniband|accel)[^\s:'\"]*).{0,40}permission denied|permission denied.{0,40}(?P<path1>/dev/(?:nvidia|dri|kfd|vfio|infiniband|accel)\S*)",
        ("its user may not open the device file",),
        (
            "add the group of the device file (video or render) to securityContext.supplementalGroups of the pod, or run container {container} as root",
        ),
    ),
)

# Kubelet plugins and their daemons.
PLUGINS: tuple[Saying, ...] = (
    Saying(
        r"checkpoint.*corrupt|corrupt\S* checkpoint|unmarshal+ing checkpoint|checkpoint.*(?:checksum|unexpected end of JSON)",
        ("the file in which it keeps its prepared claims is damaged",),
        (
            "move checkpoint.json of {plugin_directory} away there, and delete pod {self}: it then starts with a new one (drain the pods with its "
            "devices first)",
        ),
    ),
    Saying(
        r"chroot: (?:failed to run|cannot)|nvidiaDriverRoot|driver[- ]root|NVIDIA_DRIVER_ROOT|failed to (?:locate|find) (?:driver|nvidia-smi|libnvidia)",
        ("there is no NVIDIA driver in the directory that it uses as driver root",),
        (
            "install or repair the NVIDIA driver of node {node}; if it is somewhere else, set nvidiaDriverRoot in the values of the driver's chart to "
            "where it is: / if it is installed on the host, /run/nvidia/driver with the GPU Operator",
        ),
    ),
    Saying(
        r"could not unload .{0,40}kernel module|driver is (?:currently )?in use|(?:rmmod|modprobe).{0,20}Module (?P<module>\S+) is in use",
        (
            "{device_users} may use the devices of the node and so keep the old driver loaded",
            "a process of node {node} uses its devices, and so keeps the old driver loaded",
        ),
        (
            "delete {device_users} on node {node}, so that the old driver can be unloaded",
            "drain node {node}, and reboot it if the old driver stays loaded",
        ),
    ),
    Saying(
        r"driver/library version mismatch|LIB_RM_VERSION_MISMATCH",
        (),
        ("reboot node {node}, or reload its NVIDIA kernel modules: their version differs from that of the libraries",),
    ),
    Saying(
        r"Incompatible kernel and userspace|NVML.*(?:library.not.found|could not load|ERROR_LIBRARY_NOT_FOUND|driver not loaded)|amdgpu.*not loaded|no amdgpu|i915.*not loaded|xe driver",
        ("the kernel driver of its devices is not installed on node {node}, or not loaded",),
        ("install the driver on node {node}, or point the plugin to it (nvidiaDriverRoot)",),
    ),
    Saying(
        r"(?:MIG|mig)\b.*(?:not enabled|disabled|mode)|MIG mode",
        ("MIG mode of the GPU is not what the plugin expects",),
        ("enable MIG mode on node {node} (nvidia-smi -mig 1) when no pod uses its GPUs, and delete pod {self}",),
    ),
    Saying(
        r"plugins_registry|registration socket|dra\.sock.*(?:in use|denied|no such)",
        ("it cannot register with the kubelet of node {node}",),
        (
            "check the host paths of pod {self}: /var/lib/kubelet/plugins and plugins_registry must be those of the kubelet of node {node}",
        ),
    ),
)

# Everything else that containers do.
PROGRAMS: tuple[Saying, ...] = (
    *PLUGINS,
    *ACCELERATORS,
    Saying(r"certificate has expired", (), ("renew the certificate that has expired",)),
    Saying(
        r"unknown authority|CERTIFICATE_VERIFY_FAILED|self[- ]signed certificate|unable to get local issuer",
        ("it does not trust the certificate of the server",),
        (
            "mount the certificate of the server's CA in container {container} of the pod, and let the program use it (SSL_CERT_FILE)",
        ),
    ),
    Saying(
        r"is forbidden: User \"(?P<who>[^\"]+)\" cannot (?P<what>[^:]+)",
        (),
        ("let {who} {what} (RBAC)",),
    ),
    Saying(
        r"no matches for kind \"(?P<kind>[^\"]+)\" in version \"(?P<version>[^\"]+)\"",
        ("kind {kind} of {version} is not installed in the cluster",),
        ("install the CustomResourceDefinition of {kind} ({version}), in a version that the program knows",),
    ),
    # --- credentials ---
    Saying(
        r"gated repo|GatedRepo|access to model (?P<model>\S+) is restricted|huggingface\.co.*(?:401|403)|(?:401|403).*huggingface\.co"
        r"|HF_TOKEN|HUGGING_?FACE_HUB_TOKEN|must be authenticated to access",
        ("it has no token that may read the model {model}", "it has no token that may read the model"),
        (
            "give container {container} of the pod HF_TOKEN from a Secret, with a token of an account that has been granted access to the model",
        ),
    ),
    Saying(
        r"NoCredentials|Unable to locate credentials|could not find default credentials|DefaultCredentialsError|NoCredentialProviders"
        r"|no EC2 IMDS role|CredentialUnavailable|DefaultAzureCredential|no valid credential|no credentials|credentials? (?:were )?not (?:found|set|provided)"
        r"|could not automatically determine credentials",
        ("container {container} has no credentials for what it connects to",),
        (_CREDENTIALS,),
    ),
    Saying(
        # Before what is denied because of it.
        r"ExpiredToken|\b(?:secret|token|password|credentials?|(?:access|api)[ _-]?keys?(?: id)?)(?: you provided)? (?:has |have |is |are )?expired",
        ("its credentials have expired",),
        ("renew the credentials with which container {container} logs in, in its Secret, and recreate the pod",),
    ),
    Saying(
        r"not authorized to perform: (?P<action>[\w:*]+)",
        ("its credentials do not allow {action}",),
        ("allow {action} to the role of its ServiceAccount",),
    ),
    Saying(
        r"(?:password authentication failed for user|access denied for user) [\"'](?P<user>[^\"']+)",
        ("the password of user {user} is wrong",),
        ("correct the password of user {user} in the Secret that container {container} reads, and recreate the pod",),
    ),
    Saying(
        r"WRONGPASS|NOAUTH|authentication (?:failed|required)|api[_ -]?key.*(?:invalid|not|missing|required)|(?:invalid|missing|no) api[_ -]?key"
        r"|InvalidAccessKeyId|SignatureDoesNotMatch",
        ("its credentials are missing or wrong",),
        ("correct the credentials in the Secret that container {container} reads, and recreate the pod",),
    ),
    Saying(
        r"AccessDenied|access denied|\b403\b|PermissionDenied|permission_denied|insufficient permission",
        ("its credentials do not allow what it does",),
        ("let the account with which container {container} logs in read what it needs (its ServiceAccount or Secret)",),
    ),
    Saying(
        r"401\b|\bunauthorized\b|unauthenticated",
        ("its credentials are missing, wrong or expired",),
        ("renew the credentials with which it logs in, in the Secret that container {container} reads",),
    ),
    # --- names and connections ---
    Saying(
        r"(?:connecting to|connect to|at address|server on|network address of) [\"'(]*(?P<host>[\w.-]+)[\"']?(?::|, )?\d*.{0,80}(?:Name or service not known|not be resolved|cannot be retrieved)"
        r"|host not found in upstream \"(?P<host1>[\w.-]+)",
        ("{no_service}", "the name {host} is not resolved in the pod"),
        (
            "use {other_service} as the name of the Service in container {container} of the pod",
            "create the Service, or correct the name in container {container} of the pod: {no_service}",
            "check the name {host} in container {container} of the pod, and the Service or headless Service that should give it",
        ),
    ),
    Saying(
        r"lookup (?P<host>[\w.-]+)(?: on [\d.:]+)?:|(?:[Ff]ailed to|[Cc]ould not|couldn't|cannot|unable to) resolve(?: host(?:name)?)?:? ?['\"]?(?P<host1>[\w.-]+)"
        r"|(?:ENOTFOUND|EAI_AGAIN) (?P<host2>[\w.-]+)|translate host name \"(?P<host3>[\w.-]+)\"|UnknownHostException: (?P<host4>[\w.-]+)"
        r"|NameResolutionError.{0,60}host='(?P<host5>[\w.-]+)'|Temporary failure in name resolution|Name or service not known|Name does not resolve"
        r"|nodename nor servname",
        (
            "{no_service}",
            "the name {outside} is not resolved in the pod: the cluster's DNS, or what it asks, does not know or reach it",
            "a name is not resolved in the pod",
        ),
        (
            "use {other_service} as the name of the Service in container {container} of the pod",
            "create the Service, or correct the name in container {container} of the pod: {no_service}",
            "check the name {outside}, and that the pod may leave the cluster (NetworkPolicies, proxy, CoreDNS upstream)",
            "check that CoreDNS runs in kube-system, and the name that container {container} uses",
        ),
    ),
    Saying(
        r"(?:Can't connect to \w+ server on|Failed to connect to \w+ at address|failed to connect to) ['\"]?(?P<host4>[\w-][\w.-]*)['\"]?(?::(?P<port4>\d+))?"
        r"|(?:dial tcp |connect(?:ing)? to |ECONNREFUSED |host=['\"]?|server at \"|to address )(?P<host>[\w.-]+|\[::1\])['\"]?(?: \([\d.]+\))?(?:, port |:|,? port=|\", port )(?P<port>\d+)"
        r".{0,200}(?:refused|timed? ?out|timeout|no route|unreachable|ECONNREFUSED|Max retries)|ECONNREFUSED (?P<host1>[\w.-]+):(?P<port1>\d+)"
        r"|\('(?P<host2>[\w.-]+)', (?P<port2>\d+)\).{0,80}(?:refused|timed out)",
        (
            "{unserved}",
            "{no_service}",
            "nothing listens on port {locally} in its own pod",
        ),
        (
            "{serve}",
            "use {other_service} as the name of the Service in container {container} of the pod",
            "create the Service, or correct the name in container {container} of the pod: {no_service}",
            "check the container of the pod that should listen on port {locally}, and start it first (a sidecar among initContainers)",
            "check that {host}:{port} answers, and that NetworkPolicies let the pod reach it",
        ),
    ),
    Saying(
        r"connection refused|ECONNREFUSED|connection timed out|i/o timeout|no route to host|network is unreachable",
        ("what it connects to does not answer",),
        ("check that what container {container} connects to runs, and that NetworkPolicies let the pod reach it",),
    ),
    Saying(
        r"bind.{0,40}(?::|port )(?P<port>\d{1,5}).{0,40}permission denied|bind: permission denied|permission denied.*bind",
        ("a port below 1024 needs a capability",),
        (
            "let container {container} of the pod listen on a port above 1023, or add capability NET_BIND_SERVICE to its securityContext",
        ),
    ),
    Saying(
        r"(?:0\.0\.0\.0|\[::\]|127\.0\.0\.1|:)?:?(?P<port>\d{2,5})?\D{0,40}address already in use|EADDRINUSE",
        (
            "another process on node {hosted} has the port, because the pod uses the host's network",
            "another container of pod {own_network} has the port",
        ),
        (
            "stop what listens on that port of node {hosted}, or let container {container} of the pod use another one",
            "let container {container} of the pod listen on another port than the other containers of pod {own_network}",
            "let only one process of container {alone} of the pod listen on that port",
        ),
    ),
    Saying(
        r"is not a valid model identifier|is not a local folder",
        (
            "the model that it names is neither a directory of the container nor known to the model hub, or needs a token",
        ),
        (
            "correct the name of the model in container {container} of the pod, mount the volume that has it, or give it HF_TOKEN from a Secret if the model is private",
        ),
    ),
    Saying(
        r"does not recognize this architecture|model type `?(?P<model>[\w.-]+)`?.*not (?:recogni|support)|Model architectures .*not supported",
        ("image {image} is too old for the model",),
        ("use a newer image for container {container} of the pod, whose framework knows the model",),
    ),
    Saying(
        r"Permission denied \(publickey|Could not read from remote repository|Host key verification failed",
        ("it has no SSH key that the Git server accepts",),
        ("give container {container} of the pod an SSH key from a Secret, which the Git server knows",),
    ),
    Saying(
        r"KUBERNETES_SERVICE_HOST|in-cluster config",
        (
            "it has no access to the API server: its ServiceAccount token is not mounted, or it does not run as a pod does",
        ),
        ("set automountServiceAccountToken: true in the pod and its ServiceAccount",),
    ),
    Saying(
        r"could not find the requested resource \((?:get|list|post|watch) (?P<resource>[\w.]+)\)|could not find the requested resource",
        (
            "the API server does not serve {resource} in the version that it asks for",
            "the API server does not serve what it asks for",
        ),
        (
            "use a version of image {image} that fits the cluster's version, or enable the API on the API server (--runtime-config)",
        ),
    ),
    # --- memory, files, limits ---
    Saying(
        r"Unable to access jarfile (?P<path>\S+)|exec:? (?P<path1>/[\w./-]+): no such file|\bsh: (?:line )?(?:\d+: )?(?P<path2>[\w./-]+): (?:command )?not found|Cannot find module '(?P<path3>/[^']+)'",
        ("{path} is not in image {image}, or what interprets it (the first line of a script) is not",),
        (
            "correct the command of container {container} of the pod, or image {image}: {path} cannot be run; a volume that is mounted over its directory hides it",
        ),
    ),
    Saying(
        r"RayOutOfMemoryError|oom_kill|oom-kill|memory on (?:the )?node .*(?:is used|exceed)",
        ("its memory limit of {limit} is used up", "it does not get enough memory"),
        (
            "raise the memory limit of container {container} of the pod {more_memory}",
            "give container {container} of the pod a larger memory limit",
        ),
    ),
    Saying(
        r"java\.lang\.OutOfMemoryError|heap out of memory|GC overhead limit",
        ("the heap of the program is too small",),
        (
            "raise the heap of container {container} of the pod (-XX:MaxRAMPercentage, --max-old-space-size), and its memory limit {more_memory}",
            "raise the heap of container {container} of the pod (-XX:MaxRAMPercentage, --max-old-space-size)",
        ),
    ),
    Saying(
        r"\bMemoryError\b|bad_alloc|cannot allocate memory|can't allocate memory|out of memory: killed",
        ("its memory limit of {limit} is too small", "it does not get enough memory"),
        (
            "raise the memory limit of container {container} of the pod {more_memory}",
            "give container {container} of the pod a larger memory limit",
        ),
    ),
    Saying(
        r"(?:error while loading shared libraries: |ImportError: )?(?P<library>lib[\w.+-]+\.so[\w.]*): cannot open shared object",
        ("image {image} lacks {library}",),
        ("use an image for container {container} of the pod that has {library}",),
    ),
    Saying(
        r"No module named ['\"]?(?P<module>[\w.]+)|Cannot find module '(?P<module1>[^']+)'",
        ("image {image} lacks module {module}",),
        ("install {module} in image {image}, or use another image for container {container} of the pod",),
    ),
    Saying(
        r"(?P<path>/[\w./-]+)['\"]?: (?:\[Errno 30\] )?read-only file ?system|read-only file ?system:? ['\"]?(?P<path1>/[\w./-]+)|EROFS\D*(?P<path2>/[\w./-]+)",
        ("container {container} may not write to {path}",),
        (
            "mount an emptyDir volume at {path} in container {container} of the pod, or a volume that is not readOnly; readOnlyRootFilesystem keeps the rest from "
            "being written",
        ),
    ),
    Saying(
        r"read-only file ?system",
        ("the file system of container {container} is read-only (readOnlyRootFilesystem, or a volume with readOnly)",),
        ("mount an emptyDir volume where container {container} of the pod writes",),
    ),
    Saying(
        r"(?:permission denied|EACCES)\S*:? .{0,40}['\"](?P<path>/[\w./-]+)|(?P<path1>/[\w./-]+)['\"]?: permission denied",
        ("the user of container {container} may not use {path}",),
        (
            "set securityContext.fsGroup of the pod to the group that owns {path}, or runAsUser of container {container} to its user",
        ),
    ),
    Saying(
        r"operation not permitted|must be (?:run as )?root|requires? root|CAP_[A-Z_]+|EPERM",
        ("it needs a privilege that its securityContext does not give",),
        (
            "give container {container} of the pod the capability that it needs (securityContext.capabilities.add), or drop what needs it",
        ),
    ),
    Saying(
        r"no space left on device.{0,10}['\"](?P<path>/[\w./-]+)|(?P<path1>/[\w./-]+)['\"]?: no space left on device|disk quota exceeded.{0,10}['\"]?(?P<path2>/[\w./-]+)",
        ("the volume or disk with {path} is full",),
        ("free space at {path}, or enlarge its volume (on the node's own disk: of node {node})",),
    ),
    Saying(r"no space left on device|disk quota exceeded|ENOSPC", (), ("free disk space on node {node}",)),
    Saying(
        r"too many open files|EMFILE|inotify",
        ("a limit on open files is reached",),
        (
            "raise fs.inotify.max_user_instances and the limit of open files on node {node}, or open fewer in container {container}",
        ),
    ),
    Saying(
        r"can't start new thread|pthread_create|Resource temporarily unavailable|fork: retry",
        ("the container has as many processes and threads as it may have (pids limit)",),
        (
            "start fewer threads in container {container} of the pod (OMP_NUM_THREADS), or raise podPidsLimit of the kubelet of node {node}",
        ),
    ),
    # --- settings ---
    Saying(
        r"KeyError: ['\"](?P<name>[A-Z][A-Z0-9_]{2,})['\"]|(?:environment )?variable ['\"`]?(?P<name1>[A-Z][A-Z0-9_]{2,})['\"`]? (?:is |must be |was )?(?:not |required|set|missing|undefined)"
        r"|\b(?P<name2>[A-Z][A-Z0-9]*_[A-Z0-9_]+)\b:? (?:environment variable )?(?:is not set|must be set|is required|not set|unbound variable|parameter not set|is missing|not defined)"
        r"|missing (?:required )?environment variable:? ['\"`]?(?P<name3>[A-Z][A-Z0-9_]{2,})",
        ("environment variable {name} is not set in container {container}",),
        (
            "set environment variable {name} in container {container} of the pod (env, or envFrom with a ConfigMap or Secret)",
        ),
    ),
    Saying(
        r"unrecognized arguments?:? (?P<flag>-\S+)|unknown (?:option|argument|shorthand flag)[:,]? ?['\"`]?(?P<flag1>-\S+?)['\"`]?(?:\s|$)|no such option: (?P<flag2>-\S+)"
        r"|unexpected argument '(?P<flag3>-[^']+)'",
        ("image {image} does not know flag {flag}",),
        ("remove flag {flag} from container {container} of the pod, or use an image that knows it",),
    ),
    Saying(
        r"arguments are required: (?P<flag>\S+?)(?:,|\s|$)|required flag\(s\) \"(?P<flag1>[^\"]+)\"",
        ("flag {flag} is required",),
        ("give container {container} of the pod flag {flag}",),
    ),
    Saying(
        r"(?:FileNotFoundError|No such file or directory|ENOENT).{0,40}['\"](?P<path>/(?:proc/driver|sys)/[\w./-]+)"
        r"|(?:stat|open|read|lstat) (?P<path1>/(?:proc/driver|sys)/[^\s:]+): no such file",
        ("{path}, which the {kernel_driver} makes, does not exist on node {node}",),
        ("load the {kernel_driver} of node {node}, with what makes {path}; or cordon the node until it has it",),
    ),
    Saying(
        r"(?:FileNotFoundError|No such file or directory|ENOENT).{0,40}['\"](?P<path>/[\w./-]+)|(?:stat|open|read|lstat) (?P<path1>/[^\s:]+): no such file",
        ("{path} does not exist in container {container}",),
        ("put {path} on a volume that container {container} of the pod mounts there, or correct the path",),
    ),
    Saying(
        r"yaml: (?:line \d+|unmarshal)|JSONDecodeError|cannot unmarshal|(?:error|failed).{0,20}pars(?:e|ing).{0,20}config|invalid configuration|toml",
        ("the configuration that it reads is not valid",),
        ("correct the configuration that container {container} reads (its ConfigMap), and recreate the pod",),
    ),
    Saying(
        r"leader ?election lost|failed to renew lease|lost lease",
        ("the API server did not answer in time, so it gave up leadership",),
        ("check the API server and etcd: they answered too slowly to renew a lease",),
    ),
    # A container beside the one with the devices, whatever it says of them.
    Saying(
        r"\b(?:nvidia|nvml|cuda|gpus?|rocm|amdgpu|hip|tpu|libtpu|xpu|rdma|infiniband)\b",
        ("container {container} names no claim, only {owner_of_claim} does, so it has no device",),
        (_CLAIMS,),
    ),
)
