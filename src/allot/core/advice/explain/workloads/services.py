"""Services: whom they select, and whether anybody of these can answer."""

from __future__ import annotations

from allot.core.advice.explain.report import Explanation, Reason
from allot.core.advice.explain.wording import count, listed
from allot.core.advice.explain.workloads.scene import Scene, as_wanted, held_back, live_pods, not_as_wanted, of_pod
from allot.core.advice.what_if import as_json
from allot.core.model import core_v1
from allot.core.workloads.pod_states import is_ready
from allot.core.workloads.service_endpoints import ports_of, selects

_EXTERNAL = "ExternalName"


def explain_service(scene: Scene, found: core_v1.Service, *, briefly: bool) -> Explanation:
    """Why nobody answers at a Service."""
    kind, spec = "Service", found.spec
    if spec.type == _EXTERNAL:
        return as_wanted(kind, found, "is the name of something outside (ExternalName)")
    if not spec.selector:
        return as_wanted(kind, found, "has no selector: its endpoints are somebody else's business")
    here = scene.pods_in(found.metadata.namespace)
    pods = live_pods(pod for pod in here if selects(spec.selector, pod.metadata.labels))
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
    shown = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
    text = f"has no endpoints: no pod of its namespace has {'label' if len(selector) == 1 else 'labels'} {shown}"
    details = []
    near = [pod for pod in live_pods(here) if set(selector.items()) & set(pod.metadata.labels.items())]
    keys = [pod for pod in live_pods(here) if set(selector) & set(pod.metadata.labels)]
    if near:
        details.append(f"some of these labels: {listed(sorted(pod.metadata.name for pod in near))}")
    elif keys:
        values = sorted(
            {f"{key}={pod.metadata.labels[key]}" for pod in keys for key in selector if key in pod.metadata.labels}
        )
        details.append(f"pods of the namespace have {listed(values)}")
    elsewhere = sorted(
        {pod.metadata.namespace for pod in live_pods(everybody) if selects(selector, pod.metadata.labels)}
    )
    if elsewhere:
        details.append(
            f"pods with these labels are in namespace {listed(elsewhere)}; a Service selects in its own only"
        )
    return not_as_wanted("Service", found, Reason.NO_POD_SELECTED, text, details=details)


def _no_port(found: core_v1.Service, ready: list[core_v1.Pod]) -> Explanation:
    named = sorted({port.target_port for port in found.spec.ports if isinstance(port.target_port, str)})
    has = sorted({port.name for pod in ready for each in pod.spec.containers for port in each.ports if port.name})
    text = (
        f"leads to port {listed(named)} (targetPort), which no container of its pods has: they have "
        f"{listed(has) if has else 'no named ports'}"
    )
    advice = ("name the port in the containers of the pods, or give its number as targetPort",)
    return not_as_wanted("Service", found, Reason.PORT_MISSING, text, advice=advice)
