"""Containers that do not run on their pod's node: images, crashes, memory, claims that no container uses."""

from __future__ import annotations

import re
from collections.abc import Sequence

from allot.core.advice.explain.causes.admission import too_early
from allot.core.advice.explain.causes.default_limits import default_limit
from allot.core.advice.explain.causes.images import meant_image
from allot.core.advice.explain.causes.numa import REJECTED, numa_advice, numa_text
from allot.core.advice.explain.causes.references import broken_reference
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.messages.facts import Facts, more_memory
from allot.core.advice.explain.messages.nodes import NODES, SLOW
from allot.core.advice.explain.messages.programs import PROGRAMS
from allot.core.advice.explain.messages.table import Meaning, excerpt, meaning_of, shortened
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import count, named, one_line
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1, observed_v1

IMAGE = (
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
CRASHED = "CrashLoopBackOff"
_NOT_CREATED = (
    "CreateContainerError",
    "CreateContainerConfigError",
    "RunContainerError",
    "PostStartHookError",
    "PreStartHookError",
    "CreatePodSandboxError",
    "StartError",
    "ContainerCannotRun",
)
OOM = "OOMKilled"
_BACK_OFF = re.compile(r'Back-off pulling image "[^"]*":? ?(?:ErrImagePull: )?')
_ABSENT = re.compile(r"404|not found|manifest unknown", re.IGNORECASE)
_CORRECT = "correct the name or tag of image {image} in the pod"
# Why an image is not pulled, and what helps; the first match counts.
_PULLS = (
    (
        re.compile(r"ErrImageNeverPull"),
        "load image {image} onto node {node}, or set imagePullPolicy: IfNotPresent in the pod",
    ),
    (re.compile(r"InvalidImageName"), "correct the name of image {image}"),
    (
        re.compile(r"SignatureValidationFailed|signature"),
        "sign image {image}, or change the signature policy of node {node} (/etc/containers/policy.json)",
    ),
    (
        re.compile(
            r"ImageInspectError|digest mismatch|size validation failed|failed to extract|unexpected EOF|short read"
        ),
        "remove the damaged image {image} from node {node}, so that it is pulled again: crictl rmi {image}",
    ),
    (
        re.compile(r"server gave HTTP response to HTTPS client"),
        "serve the registry of {image} by HTTPS, or let the container runtime of node {node} use HTTP for it (hosts.toml)",
    ),
    (
        re.compile(r"unexpected media type text/html"),
        "correct the name of image {image}: its registry answers with a web page (a proxy, or a login)",
    ),
    (
        re.compile(r"no (?:matching manifest|match) for platform|no matching manifest for"),
        "use an image for container {container} that is built for the architecture of node {node}",
    ),
    (
        re.compile(r"x509|certificate", re.IGNORECASE),
        "let node {node} trust the certificate of the registry, or correct it",
    ),
    (
        re.compile(r"toomanyrequests|429|rate limit", re.IGNORECASE),
        "wait, or pull {image} with an account or from a mirror: the registry limits how often it is pulled",
    ),
    (re.compile(r"no space left on device", re.IGNORECASE), "free disk space on node {node}"),
    (
        re.compile(r"401|403|unauthorized|forbidden|denied|authentication", re.IGNORECASE),
        "add an imagePullSecret that may pull {image} to the pod",
    ),
    (_ABSENT, _CORRECT),
    (
        re.compile(r"no such host|i/o timeout|connection refused|TLS handshake timeout|dial tcp|deadline exceeded"),
        "let node {node} reach the registry of {image}: check its network, DNS and proxy",
    ),
)
_NO_PULL_SECRET = "FailedToRetrieveImagePullSecret"
_PULL_SECRETS = re.compile(r"image pull secrets? \((?P<names>[^)]+)\)")
_DISRUPTION = "DisruptionTarget"
# Exit codes of shells and the kernel.
_EXITS = {
    126: ("its command cannot be executed", "make the command of container {} executable, or name another one"),
    127: ("its command is not in the image", "correct the command of container {}, or the image"),
    134: ("it aborted, SIGABRT", ""),
    137: ("it was killed, SIGKILL, but not for its memory limit", ""),
    139: ("segmentation fault, SIGSEGV", ""),
    143: ("it was asked to end, SIGTERM", ""),
}
_OTHER_CPU = "exec format error"
# What programs say of their flags, of which the one that is wrong is to be changed.
_FLAGS = (
    (
        re.compile(r'invalid argument "(?P<value>[^"]+)" for "(?:-\w, )?(?P<flag>--[\w.-]+)" flag'),
        "remove {value} from {flag}",
    ),
    (re.compile(r"unknown flag: (?P<flag>--[\w.-]+)"), "remove flag {flag}"),
    (re.compile(r"flag provided but not defined: -?(?P<flag>-[\w.-]+)"), "remove flag -{flag}"),
    (re.compile(r"unrecognized feature gate: (?P<value>\w+)"), "remove {value} from --feature-gates"),
)
_NO_SUCH_FILE = re.compile(r"(?:stat|open|read|lstat) (?P<path>/[^\s:]+): no such file or directory")
_LOW_ON = re.compile(r"low on resource: (?P<resource>[\w.-]+?)\.?(?:\s|$)")
_WAS_USING = re.compile(r"[Cc]ontainer (?P<name>\S+) was using (?P<used>\w+), request is (?P<request>\w+)")
_NETWORK = re.compile(r"network for sandbox|NetworkPlugin|cni plugin|network is not ready|networkPlugin", re.IGNORECASE)
_PLUGIN = re.compile(r'plugin type="(?P<name>[^"]+)"')


def container_trouble(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """What the status of a pod's containers says is wrong; None if nothing."""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = status.state.waiting if status.state is not None else None
        ended_now = status.state.terminated if status.state is not None else None
        if ended_now is not None and ended_now.exit_code:
            return _crashed(what_if, pod, status, ended_now)
        if waiting is None:
            continue
        if waiting.reason in IMAGE:
            return _image(what_if, pod, status.name, waiting)
        if waiting.reason == CRASHED:
            last = status.last_state.terminated if status.last_state is not None else None
            return _crashed(what_if, pod, status, last)
        if waiting.reason in _NOT_CREATED:
            said = waiting.message or waiting.reason
            text = f"node {pod.spec.node_name} cannot start container {status.name}: {said}"
            return not_started(what_if, pod, text, said, status.name)
    return None


def not_started(what_if: WhatIfCluster, pod: core_v1.Pod, text: str, said: str, container: str = "") -> Diagnosis:
    """A pod that its node does not start. said: the node's message, with which the text ends; container: empty if it is about the pod."""
    broken = broken_reference(what_if, pod, said)
    if broken is not None:
        return Diagnosis(reason=Reason.STARTING, text=f"{text}{broken.hint}", advice=broken.advice)
    facts = Facts(what_if, pod, container or (pod.spec.containers[0].name if len(pod.spec.containers) == 1 else ""))
    found = meaning_of(NODES, said, facts)
    if found is not None:
        return Diagnosis(reason=Reason.STARTING, text=with_meaning(text, found), advice=found.advice)
    if _NETWORK.search(said):
        plugin = _PLUGIN.search(said)
        what = f"plugin {plugin['name']}" if plugin is not None else "the network plugin (CNI)"
        fix = f"check that the pods of {what} run on node {pod.spec.node_name}: they set up the network of other pods"
        return Diagnosis(reason=Reason.STARTING, text=text, advice=(fix,))
    # What a container's own start reports may be what its program says.
    slow = meaning_of((*SLOW, *PROGRAMS) if container else SLOW, said, facts)
    if slow is not None:
        return Diagnosis(reason=Reason.STARTING, text=with_meaning(text, slow), advice=slow.advice)
    return Diagnosis(reason=Reason.STARTING, text=text)


def with_meaning(text: str, found: Meaning | None) -> str:
    """A sentence, and what the message in it means."""
    return f"{text}: {found.text}" if found is not None and found.text else text


# What a kubelet reports for pods that it ended or did not admit, and what helps.
_ENDS = (
    (
        re.compile(r'[Cc]ontainer (?P<name>\S+) exceeded its local ephemeral storage limit "(?P<limit>[^"]+)"'),
        "raise the ephemeral-storage limit of container {name} above {limit} in the pod",
    ),
    (
        re.compile(r"ephemeral local storage usage exceeds the total limit of containers (?P<limit>[^\s.]+)"),
        "raise the ephemeral-storage limits of the containers above {limit} in the pod",
    ),
    (
        re.compile(r'Usage of EmptyDir volume "(?P<name>[^"]+)" exceeds the limit "(?P<limit>[^"]+)"'),
        "raise sizeLimit of emptyDir volume {name} above {limit} in the pod",
    ),
    (re.compile(r"DeadlineExceeded"), "raise activeDeadlineSeconds of the pod, or see why it takes so long"),
)


def ended(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """How a pod ended, phrased to follow its name: who ended it, what its node said, or how a container ended."""
    if pod.status.phase == "Succeeded":
        return "has finished (Succeeded)"
    where = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
    for condition in pod.status.conditions:
        if condition.type == _DISRUPTION and condition.status == "True":
            said = one_line(condition.message or "") or condition.reason
            return f"was evicted{where} and has failed ({condition.reason}): {said}"
    if pod.status.reason:
        said = one_line(pod.status.message)
        text = f"has failed{where} ({pod.status.reason}){f': {said}' if said else ''}"
        apart = numa_text(what_if, pod) if pod.status.reason == REJECTED else ""
        return f"{text}; {apart}" if apart else f"{text}{too_early(what_if, pod)}"
    found = _failed_container(pod)
    if found is None:
        return f"has failed{where}"
    name, last = found
    limit = memory_limit(pod, name) if last.reason == OOM else ""
    meaning = last_words(what_if, pod, name, last.message) if last.message else None
    said = meaning.shown if meaning is not None else shortened(last.message) or last.reason
    said += f", memory limit {limit}" if limit else ""
    text = f"has failed{where}: container {name} ended with exit code {last.exit_code} ({said})"
    text += default_text(what_if, pod, name) if limit else ""
    return with_meaning(text, meaning)


def _failed_container(pod: core_v1.Pod) -> tuple[str, core_v1.ContainerStateTerminated] | None:
    """The first container of a pod that ended with an error, and how."""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        last = status.state.terminated if status.state is not None else None
        if last is not None and last.exit_code:
            return status.name, last
    return None


def memory_limit(pod: core_v1.Pod, container: str) -> str:
    """The memory limit of a container; empty if it has none."""
    limits = next((each.resources.limits for each in _containers(pod) if each.name == container), {})
    return str(limits["memory"]) if "memory" in limits else ""


def ended_advice(what_if: WhatIfCluster, pod: core_v1.Pod) -> tuple[str, ...]:
    """Remedies for a pod that has failed; empty if unknown."""
    if pod.status.phase != "Failed":
        return ()
    low = _LOW_ON.search(pod.status.message)
    if low is not None:
        what = low["resource"]
        used = _WAS_USING.search(pod.status.message)
        if used is not None:
            return (
                f"raise the {what} request of container {used['name']} from {used['request']} to at least {used['used']} in the pod, and recreate it",
            )
        return (f"ask for {what} in the pod's requests, so that it is placed where there is enough, and recreate it",)
    if pod.status.reason == REJECTED:
        return numa_advice(what_if, pod)
    for pattern, remedy in _ENDS:
        found = pattern.search(f"{pod.status.reason}: {pod.status.message}")
        if found is not None:
            return (f"{remedy.format(**found.groupdict())}, and recreate it",)
    if pod.status.reason.startswith(
        ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "Terminated", "NodeShutdown")
    ):
        maker = controller_of(pod)
        if maker is not None:
            return (
                f"delete the pod: it has failed for good, and {maker.kind} {maker.name} replaces it by another one",
            )
        return ("recreate the pod: it has failed for good, and the scheduler looks for a node again",)
    failed = _failed_container(pod)
    if failed is None or pod.status.reason:
        return ()
    name, last = failed
    if last.reason == OOM:
        return tuple(_again(each) for each in more_memory_advice(what_if, pod, name))
    meaning = last_words(what_if, pod, name, last.message) if last.message else None
    return meaning.advice if meaning is not None else ()


def _again(text: str) -> str:
    return text if "recreate" in text or "delete" in text else f"{text}, and recreate it"


def unused_claims(pod: core_v1.Pod) -> list[str]:
    """Claims of a pod, by their names in it, that no container uses: no container gets their devices."""
    used = {claim.name for each in _containers(pod) for claim in each.resources.claims}
    return [entry.name for entry in pod.spec.resource_claims if entry.name not in used]


def use_advice(pod: core_v1.Pod, claims: Sequence[str]) -> str:
    """What to write so that a container gets the devices."""
    entries = ", ".join(f"{{name: {name}}}" for name in claims)
    return f"add claims: [{entries}] to the resources of {f'container {pod.spec.containers[0].name}' if pod.spec.containers else 'a container'}"


def _containers(pod: core_v1.Pod) -> list[core_v1.Container]:
    return [*pod.spec.init_containers, *pod.spec.containers]


def _image(what_if: WhatIfCluster, pod: core_v1.Pod, name: str, waiting: core_v1.ContainerStateWaiting) -> Diagnosis:
    image = next((each.image for each in _containers(pod) if each.name == name), "")
    said = _BACK_OFF.sub("", waiting.message)
    text = f"node {pod.spec.node_name} cannot pull image {image} of container {name} ({waiting.reason})"
    text = f"{text}: {said}" if said else text
    lost = events_of(what_if, pod, _NO_PULL_SECRET)
    secrets = _PULL_SECRETS.search(lost[0].message) if lost else None
    if secrets is not None and not _ABSENT.search(said):
        names = [each.strip() for each in secrets["names"].split(",")]
        namespace = pod.metadata.namespace
        known = [each.metadata for each in what_if.all(observed_v1.Secret)]
        meant = nearest(names[0], [each.name for each in known if each.namespace == namespace])
        elsewhere = sorted(each.namespace for each in known if each.name == names[0])
        hint = f' (did you mean "{meant}"?)' if meant is not None else ""
        if not hint and elsewhere:
            hint = f" in namespace {namespace} (there is one in namespace {elsewhere[0]})"
        text += f"; its {named('imagePullSecret', names)} {'does' if len(names) == 1 else 'do'} not exist{hint}"
        if elsewhere and meant is None and len(names) == 1:
            copy = f"copy Secret {elsewhere[0]}/{names[0]} to namespace {namespace}, if it is for {image}, too"
            return Diagnosis(reason=Reason.IMAGE, text=text, advice=(copy,))
        create = f"create {named('Secret', [f'{pod.metadata.namespace}/{each}' for each in names])}, with credentials to pull {image}"
        right = (f"name imagePullSecret {meant} instead of {names[0]} in the pod",) if meant is not None else ()
        return Diagnosis(reason=Reason.IMAGE, text=text, advice=(*right, create))
    advice = next((remedy for pattern, remedy in _PULLS if pattern.search(f"{waiting.reason}: {said}")), "")
    advice = advice or "check the image's name, and that the node may pull it (imagePullSecrets)"
    shown = advice.format(image=image, node=pod.spec.node_name, container=name)
    meant = meant_image(what_if, pod, image) if advice == _CORRECT else ""
    shown += f": {meant}" if meant else ""
    return Diagnosis(reason=Reason.IMAGE, text=text, advice=(shown,))


def last_words(what_if: WhatIfCluster, pod: core_v1.Pod, container: str, message: str) -> Meaning | None:
    """What a program's last message means; None if it is unknown."""
    node, said = pod.spec.node_name, one_line(message)
    # Static pods have a name that ends in their node's, and no controller.
    is_static = pod.metadata.name.endswith(f"-{node}") and not any(
        owner.kind != "Node" for owner in pod.metadata.owner_references
    )
    where = f"the manifest of pod {pod.metadata.name} on node {node}" if is_static else f"container {container}"
    for pattern, remedy in _FLAGS:
        found = pattern.search(said)
        if found is not None:
            return Meaning(excerpt(said, found.start()), "", (f"{remedy.format(**found.groupdict())} in {where}",))
    file = _NO_SUCH_FILE.search(said) if is_static else None
    if file is not None:
        return Meaning(excerpt(said, file.start()), "", (f"restore {file['path']} on node {node}",))
    return meaning_of(PROGRAMS, said, Facts(what_if, pod, container))


def default_text(what_if: WhatIfCluster, pod: core_v1.Pod, container: str) -> str:
    """Where the memory limit of a container comes from, phrased to follow a sentence about it; empty if it was written."""
    default = default_limit(what_if, pod, container)
    return f": {default.text}" if default is not None else ""


def more_memory_advice(what_if: WhatIfCluster, pod: core_v1.Pod, container: str) -> tuple[str, ...]:
    """For a container that was killed for using more memory than it may."""
    default = default_limit(what_if, pod, container)
    if default is not None:
        return default.advice
    more = more_memory(Facts(what_if, pod, container))
    return (
        f"raise the memory limit and request of container {container} in the pod {more}"
        if more
        else f"give container {container} a large enough memory request and limit in the pod",
    )


def _crashed(
    what_if: WhatIfCluster,
    pod: core_v1.Pod,
    status: core_v1.ContainerStatus,
    last: core_v1.ContainerStateTerminated | None,
) -> Diagnosis:
    times = count(status.restart_count, "restart")
    is_init = any(each.name == status.name for each in pod.spec.init_containers)
    what = f"{'init ' if is_init else ''}container {status.name}"
    if last is not None and last.reason == OOM:
        container = next((each for each in _containers(pod) if each.name == status.name), None)
        limit = container.resources.limits.get("memory") if container is not None else None
        than = f"its limit of {limit}" if limit is not None else "the node had"
        text = f"container {status.name} was killed on node {pod.spec.node_name} for using more memory than {than} (OOMKilled, {times})"
        text += default_text(what_if, pod, status.name)
        advice = more_memory_advice(what_if, pod, status.name)
        return Diagnosis(reason=Reason.OUT_OF_MEMORY, text=text, advice=advice)
    again = f", {times}" if status.restart_count else ""
    how = f"exit code {last.exit_code}{again}" if last is not None else times
    meaning = last_words(what_if, pod, status.name, last.message) if last is not None and last.message else None
    said = meaning.shown if meaning is not None else shortened(last.message) if last is not None else ""
    told = f": {said}" if said else ""
    metadata = pod.metadata
    if status.state is not None and status.state.waiting is not None:
        text = f"{what} crashes on node {pod.spec.node_name} ({CRASHED}: {how}{told})"
        previous = " --previous"
    else:
        text = f"{what} has ended on node {pod.spec.node_name} ({how}{told})"
        previous = ""
    meant, fix = _EXITS.get(last.exit_code, ("", "")) if last is not None else ("", "")
    text = with_meaning(text, meaning)
    text += f": {meant}" if meant and (meaning is None or not meaning.text) else ""
    first = [fix.format(status.name)] if fix else []
    if _OTHER_CPU in said:
        text += ": its image is built for another CPU architecture than the node has"
        first = [
            f"use an image for container {status.name} that is built for the architecture of node {pod.spec.node_name}"
        ]
    first = [*(meaning.advice if meaning is not None else ()), *first]
    log = f"kubectl logs -n {metadata.namespace} {metadata.name} -c {status.name}{previous}"
    # The message has just been quoted.
    if said and meaning is not None and meaning.advice:
        log = f"if that is not it, its log may say more: {log}"
    else:
        log = (
            f"fix what container {status.name} reports; its log may say more: {log}" if said else f"see its log: {log}"
        )
    unused = unused_claims(pod)
    if not unused:
        return Diagnosis(reason=Reason.CRASH, text=text, advice=(*first, log))
    text += f", and no container uses its {named('claim', unused)}, so none has the {'device' if len(unused) == 1 else 'devices'}"
    return Diagnosis(reason=Reason.CRASH, text=text, advice=(use_advice(pod, unused), log))
