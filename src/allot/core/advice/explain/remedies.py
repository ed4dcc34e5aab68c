"""Changes that may help, made for each kind of obstacle. None of them is known to help until it has been tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from allot.core.advice.explain.devices import Wanted, users_of
from allot.core.advice.explain.diagnosis import Candidate, ClaimPlace, Rank, patch_of, place_of_claim, request_path
from allot.core.advice.explain.expressions import Remedy
from allot.core.advice.explain.nodes import Check, shortages, taint_text, untolerated
from allot.core.advice.explain.report import Patch, Reason
from allot.core.advice.explain.wording import count, listed, named
from allot.core.advice.explain.world import World, as_json
from allot.core.advice.nearest import nearest
from allot.core.explain import Obstacle
from allot.core.features import GATES
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling.nodeinfo import NodeInfo
from allot.core.selectors import selects_device

_NEW_NODE = "new-node"
_HOSTNAME = "kubernetes.io/hostname"
_OTHERS_MAX = 4


# --- nodes ---


def for_node(world: World, pod: core_v1.Pod, info: NodeInfo, checks: Sequence[Check]) -> list[Candidate]:
    """What could be done about a node that is out of reach: each obstacle alone, or all of them at once."""
    profile = world.cluster.profiles.of(pod)
    parts: list[list[tuple[int, str, Patch]]] = []
    for check in checks:
        if check.reason is Reason.CORDONED:
            patch = patch_of("Node", info.name, {"op": "remove", "path": "/spec/unschedulable"})
            parts.append([(Rank.NODE, f"uncordon node {info.name}", patch)])
        elif check.reason is Reason.NODE_TAINT:
            parts.append(_taint(pod, info, untolerated(profile, info)))
        elif check.reason is Reason.AFFINITY:
            parts.append(_affinity(pod, info))
        elif check.reason is Reason.RESOURCES:
            parts.append(_resources(world, pod, info))
    parts = [part for part in parts if part]
    if not parts:
        return []
    if len(parts) == 1:
        return [Candidate(rank=rank, text=text, patches=(patch,)) for rank, text, patch in parts[0]]
    firsts = [part[0] for part in parts]
    return [
        Candidate(
            rank=sum(rank for rank, _, _ in firsts),
            text=", and ".join(text for _, text, _ in firsts),
            patches=tuple(patch for _, _, patch in firsts),
        )
    ]


def _pod_patch(pod: core_v1.Pod, path: str, value: object, *, recreate: bool) -> Patch:
    operation = {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}
    return patch_of("Pod", pod.metadata.name, operation, namespace=pod.metadata.namespace, recreate=recreate)


def _taint(pod: core_v1.Pod, info: NodeInfo, taints: Sequence[core_v1.Taint]) -> list[tuple[int, str, Patch]]:
    shown = named("taint", [taint_text(taint) for taint in taints])
    own = as_json(pod)["spec"].get("tolerations", [])
    added = [
        {"key": taint.key, "effect": taint.effect}
        | ({"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"})
        for taint in taints
    ]
    tolerate = _pod_patch(pod, "/spec/tolerations", [*own, *added], recreate=False)
    kept = [
        taint
        for taint in as_json(info.node)["spec"]["taints"]
        if not any(taint.get("key") == each.key and taint.get("effect") == each.effect for each in taints)
    ]
    remove = patch_of("Node", info.name, {"op": "replace", "path": "/spec/taints", "value": kept})
    found = [
        (Rank.TOLERATE, f"tolerate {shown} in the pod", tolerate),
        (Rank.ADMIN, f"remove {shown} from node {info.name}", remove),
    ]
    # A node that is not ready is no better for being tolerated.
    if any(taint.key.startswith("node.kubernetes.io/") for taint in taints):
        found = [
            (Rank.NODE, f"see to it that node {info.name} loses {shown}", remove),
            (Rank.ADD_NODE, found[0][1], tolerate),
        ]
    return found


def node_terms(pod: core_v1.Pod, info: NodeInfo) -> str:
    """What of a pod's node selector or affinity a node does not match."""
    wrong = _wrong_labels(pod, info)
    if wrong:
        shown = [
            f"{key}={value} (it has {info.labels[key]})" if key in info.labels else f"{key}={value}"
            for key, value in wrong.items()
        ]
        return f"the pod's nodeSelector {listed(shown)}"
    terms = _required(pod)
    shown = [
        f"{each.key} {each.operator} {listed(each.values)}".rstrip()
        for term in terms
        for each in (*term.match_expressions, *term.match_fields)
    ]
    return f"the pod's node affinity ({listed(shown)})" if shown else "the pod's node affinity"


def _wrong_labels(pod: core_v1.Pod, info: NodeInfo) -> dict[str, str]:
    return {key: value for key, value in pod.spec.node_selector.items() if info.labels.get(key) != value}


def _required(pod: core_v1.Pod) -> Sequence[core_v1.NodeSelectorTerm]:
    affinity = pod.spec.affinity
    nodes = affinity.node_affinity if affinity is not None else None
    required = nodes.required_during_scheduling_ignored_during_execution if nodes is not None else None
    return required.node_selector_terms if required is not None else ()


def _affinity(pod: core_v1.Pod, info: NodeInfo) -> list[tuple[int, str, Patch]]:
    wrong = _wrong_labels(pod, info)
    found = []
    if wrong:
        right = {
            key: info.labels[key] if key in wrong else value
            for key, value in pod.spec.node_selector.items()
            if key not in wrong or key in info.labels
        }
        shown = listed(f"{key}={value}" for key, value in wrong.items())
        if all(key in info.labels for key in wrong):
            instead = listed(f"{key}={info.labels[key]}" for key in wrong)
            found.append(
                (
                    Rank.FIX,
                    f"select {instead} instead of {shown} in the pod's nodeSelector",
                    _pod_patch(pod, "/spec/nodeSelector", right, recreate=True),
                )
            )
        renamed = _renamed_keys(pod.spec.node_selector, wrong, info)
        if renamed is not None:
            found.append(
                (
                    Rank.FIX,
                    f"select {listed(f'{key}={value}' for key, value in renamed.items())} in the pod's nodeSelector",
                    _pod_patch(pod, "/spec/nodeSelector", renamed, recreate=True),
                )
            )
        rest = {key: value for key, value in pod.spec.node_selector.items() if key not in wrong}
        found.append(
            (
                Rank.RELAX,
                f"leave {shown} out of the pod's nodeSelector",
                _pod_patch(pod, "/spec/nodeSelector", rest or None, recreate=True),
            )
        )
        labels = {**info.labels, **wrong}
        found.append(
            (
                Rank.ADMIN,
                f"label node {info.name} with {shown}",
                patch_of("Node", info.name, {"op": "add", "path": "/metadata/labels", "value": labels}),
            )
        )
    if _required(pod):
        path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
        found.append(
            (Rank.RELAX, "leave the required node affinity out of the pod", _pod_patch(pod, path, None, recreate=True))
        )
    return found


def _renamed_keys(selector: Mapping[str, str], wrong: dict[str, str], info: NodeInfo) -> dict[str, str] | None:
    """Labels whose keys are misspelt."""
    renamed = dict(selector)
    for key, value in wrong.items():
        meant = [other for other, there in info.labels.items() if there == value] or [nearest(key, info.labels) or ""]
        if not meant[0] or info.labels[meant[0]] != value:
            return None
        del renamed[key]
        renamed[meant[0]] = value
    return renamed


def _resources(world: World, pod: core_v1.Pod, info: NodeInfo) -> list[tuple[int, str, Patch]]:
    found = []
    lacking = shortages(world.cluster.profiles.of(pod), info)
    if lacking and len(pod.spec.containers) == 1 and not pod.spec.init_containers:
        container = as_json(pod)["spec"]["containers"][0]
        resources = container.get("resources", {})
        amounts = {each.resource: each.free for each in lacking if each.free not in ("0", "")}
        if len(amounts) == len(lacking):
            changed = {**resources, "requests": {**resources.get("requests", {}), **amounts}}
            if any(name in resources.get("limits", {}) for name in amounts):
                changed["limits"] = {**resources["limits"], **amounts}
            shown = listed(f"{name} {value}" for name, value in amounts.items())
            patch = _pod_patch(pod, "/spec/containers/0/resources", changed, recreate=True)
            found.append((Rank.FEWER, f"ask for no more than {shown}", patch))
    others = sorted(
        (each for each in info.pods.values() if each.pod.metadata.deletion_timestamp is None),
        key=lambda each: (each.priority, each.key),
    )
    for other in others[:_OTHERS_MAX]:
        metadata = other.pod.metadata
        patch = Patch(action="delete", kind="Pod", namespace=metadata.namespace, name=metadata.name)
        found.append(
            (Rank.OTHERS, f"wait for or delete pod {metadata.namespace}/{metadata.name} on node {info.name}", patch)
        )
    return found


def another_node(world: World, like: NodeInfo | None) -> list[Candidate]:
    """One more node of the same kind, with devices of the same kind."""
    if like is None:
        return []
    node = as_json(like.node)
    metadata = node["metadata"]
    labels = {**metadata.get("labels", {})}
    if _HOSTNAME in labels:
        labels[_HOSTNAME] = _NEW_NODE
    spec = {
        key: value
        for key, value in node.get("spec", {}).items()
        if key not in ("unschedulable", "taints", "providerID")
    }
    new = {**node, "metadata": {"name": _NEW_NODE, "labels": labels}, "spec": spec}
    patches = [Patch(action="create", object=new)]
    for slice_ in world.all(api.ResourceSlice):
        if slice_.spec.node_name == like.name:
            value = as_json(slice_)
            spec = {
                **value["spec"],
                "nodeName": _NEW_NODE,
                "pool": {**value["spec"]["pool"], "name": f"{value['spec']['pool']['name']}-{_NEW_NODE}"},
            }
            name = f"{_NEW_NODE}-{slice_.metadata.name}"
            patches.append(Patch(action="create", object={**value, "metadata": {"name": name}, "spec": spec}))
    text = f"add one node like {like.name}"
    return [Candidate(rank=Rank.ADD_NODE, text=text, patches=tuple(patches))]


def renamed_nodes(world: World) -> Iterator[Candidate]:
    """Slices for nodes that do not exist under that name."""
    names = set(world.cluster.nodes)
    slices = [each for each in world.all(api.ResourceSlice) if each.spec.node_name and each.spec.node_name not in names]
    used = {each.spec.node_name for each in world.all(api.ResourceSlice)}
    for slice_ in slices[:_OTHERS_MAX]:
        assert slice_.spec.node_name is not None
        meant = nearest(slice_.spec.node_name, names - used) or next(iter(sorted(names - used)), None)
        if meant is not None:
            patch = patch_of(
                "ResourceSlice", slice_.metadata.name, {"op": "replace", "path": "/spec/nodeName", "value": meant}
            )
            text = f"let the driver publish ResourceSlice {slice_.metadata.name} for node {meant} instead of {slice_.spec.node_name}"
            yield Candidate(rank=Rank.ADMIN, text=text, patches=(patch,))


# --- selectors ---


def own_selector(place: ClaimPlace, wanted: Wanted, index: int, found: Iterable[Remedy]) -> Iterator[Candidate]:
    """Another expression for a selector of a request."""
    path = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/selectors/{index}/cel/expression"
    for remedy in found:
        patch = place.patch({"op": "replace", "path": path, "value": remedy.expression})
        text = f"{remedy.text} in selector {index} of request {wanted.leaf.full_name} of {place.spoken}"
        rank = Rank.FIX if remedy.is_fix else Rank.RELAX
        yield Candidate(rank=rank, text=text, patches=(patch,), expression=remedy.expression)


def without_selectors(place: ClaimPlace, wanted: Wanted) -> Iterator[Candidate]:
    """Without one of the selectors."""
    base = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/selectors"
    selectors = wanted.leaf.request.selectors
    for index, selector in enumerate(selectors):
        path = base if len(selectors) == 1 else f"{base}/{index}"
        expression = selector.cel.expression if selector.cel is not None else ""
        text = f"leave selector {expression} out of request {wanted.leaf.full_name} of {place.spoken}"
        yield Candidate(rank=Rank.FEWER, text=text, patches=(place.patch({"op": "remove", "path": path}),))


def class_selector(class_: api.DeviceClass, index: int, found: Iterable[Remedy]) -> Iterator[Candidate]:
    """Another expression for a selector of a class."""
    for remedy in found:
        operation = {"op": "replace", "path": f"/spec/selectors/{index}/cel/expression", "value": remedy.expression}
        text = f"{remedy.text} in DeviceClass {class_.metadata.name}"
        rank = Rank.FIX if remedy.is_fix else Rank.ADMIN
        yield Candidate(
            rank=rank,
            text=text,
            patches=(patch_of("DeviceClass", class_.metadata.name, operation),),
            expression=remedy.expression,
        )


def other_class(world: World, pod: core_v1.Pod, wanted: Wanted) -> Iterator[Candidate]:
    """Another class for a request."""
    place = place_of_claim(world, pod, wanted.claim)
    if place is None:
        return
    for name in class_names(world, wanted.class_name):
        yield _with_class(place, wanted.claim.spec, wanted.leaf.full_name, name)


def _with_class(place: ClaimPlace, spec: api.ResourceClaimSpec, request: str, name: str) -> Candidate:
    path = f"{request_path(spec, request)}/deviceClassName"
    patch = place.patch({"op": "replace", "path": path, "value": name})
    return Candidate(
        rank=Rank.FIX, text=f"ask for class {name} in request {request} of {place.spoken}", patches=(patch,)
    )


def class_names(world: World, wrong: str) -> list[str]:
    """Classes that may be meant, the most similar first."""
    known = sorted(class_.metadata.name for class_ in world.all(api.DeviceClass) if class_.metadata.name != wrong)
    first = nearest(wrong, known)
    return list(dict.fromkeys([*([first] if first is not None else []), *known]))[:_OTHERS_MAX]


def missing_class(
    world: World, pod: core_v1.Pod, claim: api.ResourceClaim, request: str, name: str
) -> Iterator[Candidate]:
    """For a class that does not exist: another one, or make it."""
    place = place_of_claim(world, pod, claim)
    if place is not None:
        for other in class_names(world, name):
            yield _with_class(place, claim.spec, request, other)
    drivers = sorted({slice_.spec.driver for slice_ in world.all(api.ResourceSlice)})
    meant = nearest(name, drivers)
    for driver in dict.fromkeys([*([meant] if meant is not None else []), *drivers]):
        expression = f'device.driver == "{driver}"'
        object_ = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        }
        text = f"create DeviceClass {name} for the devices of driver {driver}"
        yield Candidate(
            rank=Rank.CREATE, text=text, patches=(Patch(action="create", object=object_),), expression=expression
        )


# --- counts, constraints, capacity ---


def lower_count(place: ClaimPlace, wanted: Wanted, numbers: Iterable[int]) -> Iterator[Candidate]:
    """Fewer devices."""
    path = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/count"
    for number in sorted({each for each in numbers if 0 < each < wanted.leaf.count}, reverse=True):
        patch = place.patch({"op": "replace", "path": path, "value": number})
        text = f"ask for {count(number, 'device')} instead of {wanted.leaf.count} in request {wanted.leaf.full_name} of {place.spoken}"
        yield Candidate(rank=Rank.FEWER, text=text, patches=(patch,))


def not_all(place: ClaimPlace, wanted: Wanted) -> Iterator[Candidate]:
    """A number of devices instead of all."""
    free = wanted.found.most_free()[1]
    if not free:
        return
    path = request_path(wanted.claim.spec, wanted.leaf.full_name)
    patch = place.patch(
        {"op": "replace", "path": f"{path}/allocationMode", "value": api.EXACT_COUNT},
        {"op": "add", "path": f"{path}/count", "value": free},
    )
    text = f"ask for {count(free, 'device')} instead of all in request {wanted.leaf.full_name} of {place.spoken}"
    yield Candidate(rank=Rank.FEWER, text=text, patches=(patch,))


def constraints(place: ClaimPlace, claim: api.ResourceClaim) -> Iterator[Candidate]:
    """Without one of the constraints."""
    found = claim.spec.devices.constraints
    for index, constraint in enumerate(found):
        attribute = constraint.match_attribute or constraint.distinct_attribute
        word = "matchAttribute" if constraint.match_attribute is not None else "distinctAttribute"
        path = "/devices/constraints" if len(found) == 1 else f"/devices/constraints/{index}"
        patch = place.patch({"op": "remove", "path": path})
        yield Candidate(
            rank=Rank.RELAX, text=f"leave constraint {word} {attribute} out of {place.spoken}", patches=(patch,)
        )


def less_capacity(place: ClaimPlace, wanted: Wanted) -> Iterator[Candidate]:
    """Less of a shared capacity."""
    base = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/capacity/requests"
    requested = wanted.leaf.request.capacity.requests if wanted.leaf.request.capacity is not None else {}
    seen: set[str] = set()
    for tally in wanted.found.of(Obstacle.CAPACITY):
        actual = tally.reason.actual
        for name, amount in requested.items():
            if actual and actual not in ("0", *seen) and str(amount) == tally.reason.needed:
                seen.add(actual)
                path = f"{base}/{name.replace('~', '~0').replace('/', '~1')}"
                patch = place.patch({"op": "replace", "path": path, "value": actual})
                text = (
                    f"ask for {name} {actual} instead of {amount} in request {wanted.leaf.full_name} of {place.spoken}"
                )
                yield Candidate(rank=Rank.FEWER, text=text, patches=(patch,))


# --- devices that others have ---


def freed(world: World, pod: core_v1.Pod, wanted: Wanted) -> Iterator[Candidate]:
    """Others who hold devices that the request could use, let go: on each node as few as are enough."""
    obstacles = (Obstacle.IN_USE, Obstacle.COUNTER, Obstacle.CAPACITY, Obstacle.COMPATIBILITY_GROUP)
    by_node: dict[str, dict[str, int]] = {}
    for tally in wanted.found.of(*obstacles):
        for claim_name, number in tally.claims.items():
            namespace, _, name = claim_name.partition("/")
            claim = world.get(api.ResourceClaim, name, namespace)
            allocation = claim.status.allocation if claim is not None else None
            pools = {result.pool for result in allocation.devices.results} if allocation is not None else set()
            node = next((each for each in tally.nodes if each in pools), next(iter(tally.nodes)))
            by_node.setdefault(node, {})[claim_name] = number
            if len(by_node) > 64:
                break
    options: list[tuple[int, str, list[str]]] = []
    for node, claims in by_node.items():
        found = wanted.found.nodes.get(node)
        free = found.free if found is not None else 0
        total = found.in_class if wanted.leaf.all_devices and found is not None else wanted.leaf.count
        lacking = max(1, total - free)
        chosen: list[str] = []
        for claim_name, number in sorted(claims.items(), key=lambda item: (-item[1], item[0])):
            if lacking <= 0:
                break
            chosen.append(claim_name)
            lacking -= number
        options.append((len(chosen), node, chosen))
        if len(claims) > len(chosen):
            options.append((len(claims), node, sorted(claims)))
    for _, node, chosen in islice(sorted(options), 2 * _OTHERS_MAX):
        yield from _let_go(world, pod, node, chosen)


def _let_go(world: World, pod: core_v1.Pod, node: str, names: Sequence[str]) -> Iterator[Candidate]:
    patches: dict[tuple[str, str, str], Patch] = {}
    texts = []
    for full in names:
        namespace, _, name = full.partition("/")
        claim = world.get(api.ResourceClaim, name, namespace)
        if claim is None:
            return
        users = users_of(world, claim)
        if any(user.metadata.uid == pod.metadata.uid for user in users):
            return
        if users:
            texts += [f"pod {user.metadata.namespace}/{user.metadata.name}" for user in users]
            for user in users:
                metadata = user.metadata
                key = ("Pod", metadata.namespace, metadata.name)
                patches[key] = Patch(action="delete", kind="Pod", namespace=metadata.namespace, name=metadata.name)
        else:
            texts.append(f"claim {full}, which no pod uses")
            patches["ResourceClaim", namespace, name] = Patch(
                action="delete", kind="ResourceClaim", namespace=namespace, name=name
            )
    idle = all(patch.kind == "ResourceClaim" for patch in patches.values())
    first = "delete" if idle else "wait for or delete"
    where = f" on node {node}" if node else ""
    rank = Rank.NODE if idle else Rank.OTHERS + min(len(patches) - 1, 4)
    yield Candidate(rank=rank, text=f"{first} {listed(texts, 4)}{where}", patches=tuple(patches.values()))


def released(world: World, pod: core_v1.Pod, claim: api.ResourceClaim) -> Iterator[Candidate]:
    """A claim that has its devices in the wrong place gives them back."""
    users = [user for user in users_of(world, claim) if user.metadata.uid != pod.metadata.uid]
    metadata = claim.metadata
    if not users:
        spec = as_json(claim).get("spec", {})
        new = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"namespace": metadata.namespace, "name": metadata.name},
            "spec": spec,
        }
        if metadata.owner_references:
            new["metadata"] = {**as_json(claim)["metadata"], "resourceVersion": ""}
        anew = (
            Patch(action="delete", kind="ResourceClaim", namespace=metadata.namespace, name=metadata.name),
            Patch(action="create", object=new),
        )
        yield Candidate(
            rank=Rank.NODE,
            text=f"delete claim {metadata.namespace}/{metadata.name} and make it anew, so that it gets other devices",
            patches=anew,
        )
        return
    patches = tuple(
        Patch(action="delete", kind="Pod", namespace=user.metadata.namespace, name=user.metadata.name) for user in users
    )
    names = named("pod", [f"{user.metadata.namespace}/{user.metadata.name}" for user in users])
    yield Candidate(
        rank=Rank.OTHERS,
        text=f"wait for or delete {names}, so that claim {metadata.namespace}/{metadata.name} gives its devices back",
        patches=patches,
    )


# --- taints, pools, gates ---


def _taints(world: World, wanted: Wanted) -> list[api.DeviceTaint]:
    inventory = world.claims.inventory
    found: dict[tuple[str, str, str], api.DeviceTaint] = {}
    signature = wanted.leaf.signature
    assert signature is not None
    for tally in wanted.found.of(Obstacle.TAINT):
        for text in tally.devices:
            driver, _, rest = text.partition("/")
            pool, _, device = rest.rpartition("/")
            from allot.core.allocation.devices import DeviceID

            for entry in inventory.devices_named(DeviceID(driver, pool, device)):
                for taint in signature.taints_in_the_way(entry):
                    found[taint.key, taint.value, taint.effect] = taint
    return list(found.values())


def _rules(world: World, wanted: Wanted) -> list[api.DeviceTaintRule]:
    taints = {(taint.key, taint.effect) for taint in _taints(world, wanted)}
    devices = [text for tally in wanted.found.of(Obstacle.TAINT) for text in tally.devices]
    found = []
    for rule in world.all(api.DeviceTaintRule):
        if (rule.spec.taint.key, rule.spec.taint.effect) not in taints:
            continue
        for text in devices:
            driver, _, rest = text.partition("/")
            pool, _, device = rest.rpartition("/")
            if selects_device(rule.spec.device_selector, driver, pool, device):
                found.append(rule)
                break
    return found


def taint_origin(world: World, wanted: Wanted) -> str:
    """Who tainted the devices, if it was a rule."""
    rules = _rules(world, wanted)
    return f" (set by {named('DeviceTaintRule', [rule.metadata.name for rule in rules])})" if rules else ""


def device_taint(world: World, place: ClaimPlace | None, wanted: Wanted) -> Iterator[Candidate]:
    """A taint tolerated, or taken away."""
    taints = _taints(world, wanted)
    for rule in _rules(world, wanted):
        patch = Patch(action="delete", kind="DeviceTaintRule", name=rule.metadata.name)
        yield Candidate(rank=Rank.ADMIN, text=f"delete DeviceTaintRule {rule.metadata.name}", patches=(patch,))
    if place is None or not taints:
        return
    path = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/tolerations"
    own = [
        {"key": each.key, "operator": each.operator, "value": each.value, "effect": each.effect}
        for each in wanted.leaf.request.tolerations
    ]
    added = [
        {"key": taint.key, "effect": taint.effect}
        | ({"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"})
        for taint in taints
    ]
    tolerations = [{key: value for key, value in each.items() if value} for each in [*own, *added]]
    patch = place.patch({"op": "add", "path": path, "value": tolerations})
    shown = named("taint", [taint.key for taint in taints])
    yield Candidate(
        rank=Rank.TOLERATE,
        text=f"tolerate {shown} in request {wanted.leaf.full_name} of {place.spoken}",
        patches=(patch,),
    )


def pool(world: World, driver: str, name: str) -> tuple[str, tuple[str, ...], list[Candidate]]:
    """What is wrong with a pool, in words, and what may help."""
    slices = [
        each for each in world.all(api.ResourceSlice) if (each.spec.driver, each.spec.pool.name) == (driver, name)
    ]
    newest = max((each.spec.pool.generation for each in slices), default=0)
    current = [each for each in slices if each.spec.pool.generation == newest]
    old = [each for each in slices if each.spec.pool.generation != newest]
    expected = current[0].spec.pool.resource_slice_count if current else 0
    nodes = sorted({each.spec.node_name for each in current if each.spec.node_name})
    where = f" (on {named('node', nodes)})" if nodes else ""
    generation = f" of generation {newest}" if old else ""
    text = (
        f"pool {name} of driver {driver}{where} is incomplete: {count(len(current), 'ResourceSlice')}{generation} "
        f"{'is' if len(current) == 1 else 'are'} published, but resourceSliceCount is {expected}"
    )
    details = []
    if old:
        text += f" ({count(len(old), 'slice')} of generation {listed(str(each.spec.pool.generation) for each in old)} {'does' if len(old) == 1 else 'do'} not count any more)"
    patches = tuple(
        patch_of(
            "ResourceSlice",
            each.metadata.name,
            {"op": "replace", "path": "/spec/pool/resourceSliceCount", "value": len(current)},
        )
        for each in current
    )
    candidates = [
        Candidate(
            rank=Rank.ADMIN,
            text=f"let driver {driver} publish the whole pool; until then resourceSliceCount {len(current)} makes what is there usable",
            patches=patches,
        )
    ]
    if old:
        gone = tuple(Patch(action="delete", kind="ResourceSlice", name=each.metadata.name) for each in current)
        candidates.append(
            Candidate(
                rank=Rank.ADMIN,
                text=f"delete the incomplete {named('slice', [each.metadata.name for each in current])}, so that generation {max(each.spec.pool.generation for each in old)} counts again",
                patches=gone,
            )
        )
    details.append("the driver's log on the node says why it has not published the rest")
    return text, tuple(details), candidates


def gates(world: World) -> list[Candidate]:
    """Feature gates that concern devices and are off."""
    names = [name for name in GATES if name.startswith("DRA") and name not in world.gates]
    return [
        Candidate(
            rank=Rank.GATE,
            text=f"switch feature gate {name} on",
            patches=(Patch(action="gate", name=name, enabled=True),),
        )
        for name in names
    ]
