"""Rows of the core group besides pods: nodes, services, events, volumes, quota and so on."""

from __future__ import annotations

from allot.apiserver.printing.cells import (
    NONE,
    UNKNOWN,
    UNSET,
    Cells,
    Moment,
    Object,
    Printer,
    columns,
    containers,
    count,
    flag,
    integer,
    items,
    labels,
    members,
    name_of,
    number,
    scalar,
    shortened,
    text,
    texts,
)

_ROLE_PREFIX = "node-role.kubernetes.io/"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _node(node: Object, now: Moment) -> Cells:
    ready = [item for item in items(node, "status", "conditions") if item.get("type") == "Ready"]
    status = [("Ready" if ready[-1].get("status") == "True" else "NotReady") if ready else "Unknown"]
    if flag(node, "spec", "unschedulable"):
        status.append("SchedulingDisabled")
    info = members(node, "status", "nodeInfo")
    kernel = text(info, "kernelVersion") or UNKNOWN
    architecture = text(info, "architecture")
    return [
        name_of(node),
        ",".join(status),
        ",".join(_roles(node)) or NONE,
        now.age(node),
        text(info, "kubeletVersion"),
        _address(node, "InternalIP"),
        _address(node, "ExternalIP"),
        text(info, "osImage") or UNKNOWN,
        f"{kernel} ({architecture})" if architecture else kernel,
        text(info, "containerRuntimeVersion") or UNKNOWN,
    ]


def _roles(node: Object) -> list[str]:
    roles = set()
    for name, value in members(node, "metadata", "labels").items():
        if name.startswith(_ROLE_PREFIX):
            roles.add(name.removeprefix(_ROLE_PREFIX))
        elif name == "kubernetes.io/role":
            roles.add(scalar(value))
    return sorted(roles - {""})


def _address(node: Object, type_: str) -> str:
    found = (item for item in items(node, "status", "addresses") if item.get("type") == type_)
    return text(next(found, {}), "address") or NONE


def _event(event: Object, now: Moment) -> Cells:
    first = now.since(event.get("firstTimestamp") or event.get("eventTime"))
    last = now.since(event.get("lastTimestamp")) if event.get("lastTimestamp") else first
    times = number(event, "count") or 1
    if isinstance(event.get("series"), dict):
        last, times = now.since(event["series"].get("lastObservedTime")), integer(event, "series", "count")
    involved = members(event, "involvedObject")
    target = text(involved, "kind").lower()
    component = text(event, "source", "component") or text(event, "reportingComponent")
    instance = text(event, "source", "host") or text(event, "reportingInstance")
    return [
        last,
        text(event, "type"),
        text(event, "reason"),
        f"{target}/{text(involved, 'name')}" if text(involved, "name") else target,
        text(involved, "fieldPath"),
        f"{component}, {instance}" if instance else component,
        text(event, "message").strip(),
        first,
        times,
        name_of(event),
    ]


def _service(service: Object, now: Moment) -> Cells:
    spec = members(service, "spec")
    addresses = texts(spec, "clusterIPs")
    return [
        name_of(service),
        text(spec, "type"),
        addresses[0] if addresses else NONE,
        _external_address(service),
        ",".join(_port(port) for port in items(spec, "ports")) or NONE,
        now.age(service),
        labels(spec.get("selector")),
    ]


def balancer_addresses(object_: Object) -> list[str]:
    """Where a load balancer can be reached."""
    points = items(object_, "status", "loadBalancer", "ingress")
    return sorted({text(point, "ip") or text(point, "hostname") for point in points} - {""})


def _external_address(service: Object) -> str:
    given = texts(service, "spec", "externalIPs")
    match text(service, "spec", "type"):
        case "ClusterIP" | "NodePort":
            return ",".join(given) or NONE
        case "LoadBalancer":
            return ",".join([*balancer_addresses(service), *given]) or "<pending>"
        case "ExternalName":
            return text(service, "spec", "externalName")
        case _:
            return UNKNOWN


def _port(port: Object) -> str:
    node_port = integer(port, "nodePort")
    number_ = f"{integer(port, 'port')}:{node_port}" if node_port > 0 else str(integer(port, "port"))
    return f"{number_}/{text(port, 'protocol')}"


def _endpoints(endpoints: Object, now: Moment) -> Cells:
    shown = []
    for subset in items(endpoints, "subsets"):
        addresses = [text(item, "ip") for item in items(subset, "addresses")]
        ports = [integer(port, "port") for port in items(subset, "ports")]
        if not ports:
            shown += addresses
        for port in ports:
            shown += [f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in addresses]
    listed = shortened(shown) if shown or not items(endpoints, "subsets") else ""
    return [name_of(endpoints), listed, now.age(endpoints)]


def access_modes(modes: list[str]) -> str:
    """Access modes, each once, in their usual order."""
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def _storage_class(object_: Object) -> str:
    annotation = members(object_, "metadata", "annotations").get(_CLASS_ANNOTATION)
    return annotation if isinstance(annotation, str) else text(object_, "spec", "storageClassName")


def _phase(object_: Object) -> str:
    return "Terminating" if text(object_, "metadata", "deletionTimestamp") else text(object_, "status", "phase")


def _volume(volume: Object, now: Moment) -> Cells:
    spec = members(volume, "spec")
    claim = spec.get("claimRef")
    return [
        name_of(volume),
        scalar(members(spec, "capacity").get("storage"), "0"),
        access_modes(texts(spec, "accessModes")),
        text(spec, "persistentVolumeReclaimPolicy"),
        _phase(volume),
        f"{text(claim, 'namespace')}/{text(claim, 'name')}" if isinstance(claim, dict) else "",
        _storage_class(volume),
        text(spec, "volumeAttributesClassName") or UNSET,
        text(volume, "status", "reason"),
        now.age(volume),
        text(spec, "volumeMode") or UNSET,
    ]


def _volume_claim(claim: Object, now: Moment) -> Cells:
    spec, status = members(claim, "spec"), members(claim, "status")
    volume = text(spec, "volumeName")
    return [
        name_of(claim),
        _phase(claim),
        volume,
        scalar(members(status, "capacity").get("storage"), "0") if volume else "",
        access_modes(texts(status, "accessModes")) if volume else "",
        _storage_class(claim),
        text(spec, "volumeAttributesClassName") or UNSET,
        now.age(claim),
        text(spec, "volumeMode") or UNSET,
    ]


def _quota(quota: Object, now: Moment) -> Cells:
    hard, used = members(quota, "status", "hard"), members(quota, "status", "used")
    requests: list[str] = []
    limits: list[str] = []
    for name in sorted(hard):
        listed = limits if name.startswith("limits.") else requests
        listed.append(f"{name}: {scalar(used.get(name), '0')}/{scalar(hard[name])}")
    return [name_of(quota), ", ".join(requests), ", ".join(limits), now.age(quota)]


def _controller(controller: Object, now: Moment) -> Cells:
    spec, status = members(controller, "spec"), members(controller, "status")
    return [
        name_of(controller),
        integer(spec, "replicas"),
        integer(status, "replicas"),
        integer(status, "readyReplicas"),
        now.age(controller),
        *containers(spec.get("template")),
        labels(spec.get("selector")),
    ]


def _component(component: Object, _: Moment) -> Cells:
    healthy = next((item for item in items(component, "conditions") if item.get("type") == "Healthy"), None)
    if healthy is None:
        return [name_of(component), "Unknown", "", ""]
    status = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name_of(component), status, text(healthy, "message"), text(healthy, "error")]


def _template(template: Object, _: Moment) -> Cells:
    inner = members(template, "template")
    return [name_of(template), *containers(inner), labels(members(inner, "metadata").get("labels"))]


PRINTERS: dict[tuple[str, str], Printer] = {
    ("", "Namespace"): Printer(
        columns("Name|Status|Age"), lambda o, now: [name_of(o), text(o, "status", "phase"), now.age(o)]
    ),
    ("", "Node"): Printer(
        columns("Name|Status|Roles|Age|Version|Internal-IP+|External-IP+|OS-Image+|Kernel-Version+|Container-Runtime+"),
        _node,
    ),
    ("", "Event"): Printer(
        columns("Last Seen|Type|Reason|Object|Subobject+|Source+|Message|First Seen+|Count+|Name+"), _event
    ),
    ("", "Service"): Printer(columns("Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector+"), _service),
    ("", "Endpoints"): Printer(columns("Name|Endpoints|Age"), _endpoints),
    ("", "ConfigMap"): Printer(
        columns("Name|Data|Age"), lambda o, now: [name_of(o), count(o, "data") + count(o, "binaryData"), now.age(o)]
    ),
    ("", "Secret"): Printer(
        columns("Name|Type|Data|Age"), lambda o, now: [name_of(o), text(o, "type"), count(o, "data"), now.age(o)]
    ),
    ("", "ServiceAccount"): Printer(columns("Name|Age"), lambda o, now: [name_of(o), now.age(o)]),
    ("", "PersistentVolume"): Printer(
        columns(
            "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|VolumeMode+"
        ),
        _volume,
    ),
    ("", "PersistentVolumeClaim"): Printer(
        columns("Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|VolumeMode+"),
        _volume_claim,
    ),
    ("", "ResourceQuota"): Printer(columns("Name|Request|Limit|Age"), _quota),
    ("", "ReplicationController"): Printer(
        columns("Name|Desired#|Current#|Ready#|Age|Containers+|Images+|Selector+"), _controller
    ),
    ("", "ComponentStatus"): Printer(columns("Name|Status|Message|Error"), _component),
    ("", "PodTemplate"): Printer(columns("Name|Containers|Images|Pod Labels"), _template),
}
