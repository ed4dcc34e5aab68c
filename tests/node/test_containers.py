"""What a container may use."""

from __future__ import annotations

from typing import Any

from allot.core.lifecycle.pod_environment import PodFacts
from allot.core.model.codec import decode_served
from allot.core.model.core_v1 import Pod
from allot.core.quantity import Quantity
from allot.node.containers import resources_of

LIMITED = {"limits": {"cpu": "2", "memory": "2Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}
GIB, MIB = 1024**3, 1024**2


def pod(**claim: Any) -> Pod:
    return decode_served(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": [{"name": name, "resources": LIMITED} for name in ("a", "b", "c")]},
            "status": {
                "qosClass": "Burstable",
                "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "x", "containers": ["a", "b"], **claim}],
            },
        },
        Pod,
    )


def test_devices_that_stand_for_processors_and_memory_of_the_node_raise_the_limits_of_their_containers() -> None:
    found = pod(
        mapping=[{"name": "cpu", "quantity": "1"}, {"name": "memory", "quantity": "1000Mi"}],
        overhead=[{"name": "cpu", "perPod": "100m", "perContainer": "200m"}, {"name": "memory", "perPod": "100Mi"}],
    )
    facts = PodFacts(allocatable={"memory": Quantity.parse("10Gi")})
    first, _, beside = (resources_of(found, each, facts) for each in found.spec.containers)
    assert (first.cpu_milli_request, first.cpu_milli_limit) == (1000, 2000 + 1000 + 100 + 200)
    assert first.memory_limit_bytes == 2 * GIB + 1100 * MIB
    # Its share of what both use counts when memory runs out.
    assert first.oom_score_adjust == 1000 - 1000 * (GIB + 550 * MIB) // (10 * GIB)
    assert (beside.cpu_milli_limit, beside.memory_limit_bytes) == (2000, 2 * GIB)


def test_a_container_without_limits_stays_without() -> None:
    found = pod(mapping=[{"name": "cpu", "quantity": "1"}])
    plain = type(found.spec.containers[0])(name="a")
    assert resources_of(found, plain, PodFacts()).cpu_milli_limit is None
