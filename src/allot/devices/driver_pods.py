"""Drivers as pods, with the names of the vendors' charts, so that users find them where they expect them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allot.core.model.compute_domains import DRIVER_NAMESPACE

# Part of the names of driver pods.
DRIVER_POD = "-kubelet-plugin-"


class DriverPod(msgspec.Struct, frozen=True):
    """Where a driver's pod is, its label `app.kubernetes.io/name`, and its container's name; without a chart both are the pod's."""

    namespace: str = "kube-system"
    app: str = ""
    container: str = ""


_BY_KIND: Mapping[str, DriverPod] = {
    "gpu": DriverPod(DRIVER_NAMESPACE, "dra-driver-nvidia-gpu", "gpus"),
    "computedomain": DriverPod(DRIVER_NAMESPACE, "dra-driver-nvidia-gpu", "compute-domains"),
    # GKE's managed DRANET.
    "nic": DriverPod("gke-managed-networking-dra-driver", "networking-dra-driver", "networking-dra-driver"),
    "cpu": DriverPod("kube-system", "dra-driver-cpu", "dra-driver-cpu"),
    "tpu": DriverPod("dra-driver-google-tpu", "dra-driver-google-tpu", "plugin"),
}
DRIVER_NAMESPACES = frozenset(each.namespace for each in (DriverPod(), *_BY_KIND.values()))


def driver_pod_name(kind: str, node: str) -> str:
    """The name of a driver's pod, which has the driver's log."""
    return f"{kind}{DRIVER_POD}{node}"


def driver_pod(kind: str) -> DriverPod:
    """The pod of a kind of driver."""
    name = f"{kind}{DRIVER_POD}".rstrip("-")
    return _BY_KIND.get(kind) or DriverPod(app=name, container=name)
