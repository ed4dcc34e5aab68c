"""Services: which pods they select, and whether any of them is ready."""

from __future__ import annotations

from allot.core.advice.explain.causes.selecting import scale_up, scaled_to_nothing, selects_nobody
from allot.core.advice.explain.report import Explanation, Reason
from allot.core.advice.explain.wording import count, listed
from allot.core.advice.explain.workloads.scene import Scene, as_wanted, held_back, live_pods, not_as_wanted, of_pod
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import as_json
from allot.core.model import core_v1
from allot.core.workloads.pod_states import is_ready
from allot.core.workloads.service_endpoints import ports_of, selects

_EXTERNAL = "ExternalName"


def explain_service(scene: Scene, found: core_v1.Service, *, briefly: bool) -> Explanation:
    """Why a Service has no ready endpoint."""
    kind, spec = "Service", found.spec
    if spec.type == _EXTERNAL:
        return as_wanted(kind, found, "is an alias of an external name (ExternalName)")
    if not spec.selector:
        return as_wanted(kind, found, "has no selector: its endpoints are managed elsewhere")
    here = scene.pods_in(found.metadata.namespace)
    pods = live_pods(pod for pod in here if selects(spec.selector, pod.metadata.labels))
    empty = None if pods else scaled_to_nothing(scene.what_if, found.metadata.namespace, spec.selector)
    if empty is not None:
        text = f"has no endpoints: Deployment {empty.metadata.name} is scaled to 0"
        return not_as_wanted(kind, found, Reason.NO_POD_SELECTED, text, advice=(scale_up(scene.what_if, empty),))
    if not pods:
        return _nobody(found, here, [] if briefly else scene.what_if.all(core_v1.Pod))
    ready = [pod for pod in pods if is_ready(pod)]
    if not ready:
        held = held_back(scene, pods, briefly=briefly)
        assert held is not None, "pods that are not ready are held back"
        text = f"has no ready endpoint: {held.text}"
        return of_pod(not_as_wanted(kind, found, Reason.NO_READY_POD, text), held.explanation)
    service = as_json(found)
    without = [pod for pod in ready if len(ports_of(service, pod)) < len(spec.ports)]
    if len(without) == len(ready):
        return _no_port(found, ready)
    left = f" ({len(pods) - len(ready)} not ready)" if len(ready) < len(pods) else ""
    return as_wanted(kind, found, f"has {count(len(ready), 'ready endpoint')}{left}")


def _nobody(found: core_v1.Service, here: list[core_v1.Pod], everybody: list[core_v1.Pod]) -> Explanation:
    selector = found.spec.selector
    text, fix = selects_nobody(found, live_pods(here))
    elsewhere = sorted(
        {pod.metadata.namespace for pod in live_pods(everybody) if selects(selector, pod.metadata.labels)}
    )
    if elsewhere:
        text += f"; there are such pods in namespace {listed(elsewhere)}, but a Service selects only pods of its own namespace"
        fix = fix or f"create Service {found.metadata.name} in namespace {elsewhere[0]}"
    advice = [fix] if fix else []
    return not_as_wanted("Service", found, Reason.NO_POD_SELECTED, text, advice=advice)


def _no_port(found: core_v1.Service, ready: list[core_v1.Pod]) -> Explanation:
    declared = {port.name: port.container_port for pod in ready for each in pod.spec.containers for port in each.ports}
    has = {name: number for name, number in sorted(declared.items()) if name}
    ports = found.spec.ports
    lacking = [port for port in ports if isinstance(port.target_port, str) and port.target_port not in has]
    targeted = [port.target_port or port.port for port in ports]
    left = [name for name, number in has.items() if name not in targeted and number not in targeted]
    shown = (
        f"they declare {listed(f'{name} ({number})' for name, number in has.items())}"
        if has
        else "they declare no named ports"
    )
    wanted = sorted({str(port.target_port) for port in lacking})
    text = f"targets port {listed(wanted)} (targetPort), which no container of its pods declares: {shown}"
    meant = [_meant(each, list(has), left) for each in wanted]
    advice = []
    if all(meant):
        advice.append(f"set {listed(f'targetPort: {each}' for each in meant if each)} in Service {found.metadata.name}")
    advice.append(f"name the port {listed(wanted)} in the containers of the pods, or give its number as targetPort")
    return not_as_wanted("Service", found, Reason.PORT_MISSING, text, advice=advice)


def _meant(name: str, has: list[str], left: list[str]) -> str | None:
    """The declared port that a name stands for: one spelled alike, the only one there is, or of those that the Service does not target (left), the only
    one with a word of the name; None if that is not clear."""
    alike = nearest(name, has) or (has[0] if len(has) == 1 else None)
    words = {*name.split("-")}
    sharing = [each for each in left if words & {*each.split("-")}]
    return alike or (sharing[0] if len(sharing) == 1 else None)
