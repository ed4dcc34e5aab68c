"""Claims, classes and slices that validation would refuse, or that make no sense together: an answer, never a crash.

A scheduler may run on a server of another version, and objects may be stored that it would not accept today.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.features import ALL_GATES, DEFAULT_GATES, FeatureGates
from allot.core.model import resource_v1 as api
from allot.core.model.codec import decode
from allot.core.scheduling.devices.claim_fit import ClaimFit
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.plan import Placement
from allot.core.scheduling.status import Status

from .device_world import DRIVER, NAMESPACE, container, node, pod

names = st.sampled_from(["", "a", "b", "gpu", "n1", "Ä", "a/b", "x" * 70])
amounts = st.sampled_from(["0", "-1", "1", "2", "500m", "1n", "9E", "1e30"])
numbers = st.sampled_from([-1, 0, 1, 2, 33, 2**40])
expressions = st.sampled_from(
    ["", "true", "false", "1", "nonsense(", "device.attributes['gpu.example.com'].a == 1", "device.driver == 'x'"]
)
selectors = st.lists(
    st.one_of(st.just({}), st.builds(lambda text: {"cel": {"expression": text}}, expressions)), max_size=2
)
node_selectors = st.fixed_dictionaries(
    {
        "nodeSelectorTerms": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "matchExpressions": st.lists(
                        st.fixed_dictionaries(
                            {
                                "key": names,
                                "operator": st.sampled_from(["In", "Near", "Gt", ""]),
                                "values": st.lists(names, max_size=2),
                            }
                        ),
                        max_size=1,
                    ),
                    "matchFields": st.lists(
                        st.fixed_dictionaries(
                            {
                                "key": st.sampled_from(["metadata.name", "x"]),
                                "operator": st.sampled_from(["In", "NotIn", "x"]),
                                "values": st.lists(names, max_size=2),
                            }
                        ),
                        max_size=1,
                    ),
                },
            ),
            max_size=2,
        )
    }
)
taints = st.lists(st.fixed_dictionaries({"key": names, "effect": st.sampled_from(["NoSchedule", "", "x"])}), max_size=1)
counters = st.lists(
    st.fixed_dictionaries(
        {"counterSet": names, "counters": st.dictionaries(names, st.fixed_dictionaries({"value": amounts}), max_size=2)}
    ),
    max_size=2,
)
resources = st.dictionaries(
    st.sampled_from(["cpu", "memory", "hugepages-2Mi", "x"]),
    st.fixed_dictionaries(
        {},
        optional={
            "mapping": st.fixed_dictionaries(
                {}, optional={"capacityKey": names, "capacityMultiplier": amounts, "deviceMultiplier": amounts}
            ),
            "overhead": st.fixed_dictionaries({}, optional={"perPod": amounts, "perContainer": amounts}),
        },
    ),
    max_size=2,
)
policies = st.fixed_dictionaries(
    {},
    optional={
        "default": amounts,
        "validValues": st.lists(amounts, max_size=2),
        "validRange": st.fixed_dictionaries({}, optional={"min": amounts, "max": amounts, "step": amounts}),
    },
)
devices = st.fixed_dictionaries(
    {"name": names},
    optional={
        "attributes": st.dictionaries(
            names,
            st.sampled_from(
                [{}, {"int": 1}, {"string": "x"}, {"version": "bad"}, {"ints": []}, {"strings": ["a", "a"]}]
            ),
            max_size=2,
        ),
        "capacity": st.dictionaries(
            names, st.fixed_dictionaries({"value": amounts}, optional={"requestPolicy": policies}), max_size=2
        ),
        "consumesCounters": counters,
        "nodeName": names,
        "nodeSelector": node_selectors,
        "allNodes": st.booleans(),
        "taints": taints,
        "bindsToNode": st.booleans(),
        "bindingConditions": st.lists(names, max_size=1),
        "allowMultipleAllocations": st.booleans(),
        "nodeAllocatableResources": resources,
    },
)
slices = st.fixed_dictionaries(
    {
        "driver": st.sampled_from([DRIVER, "", "x"]),
        "pool": st.fixed_dictionaries(
            {"name": names, "generation": numbers, "resourceSliceCount": st.sampled_from([0, 1, 2])}
        ),
    },
    optional={
        "nodeName": st.sampled_from(["n1", "n2", ""]),
        "nodeSelector": node_selectors,
        "allNodes": st.booleans(),
        "perDeviceNodeSelection": st.booleans(),
        "devices": st.lists(devices, max_size=3),
        "sharedCounters": st.lists(
            st.fixed_dictionaries(
                {
                    "name": names,
                    "counters": st.dictionaries(names, st.fixed_dictionaries({"value": amounts}), max_size=2),
                }
            ),
            max_size=2,
        ),
        "skipNodeOperations": st.lists(names, max_size=1),
    },
)
asked = {
    "deviceClassName": st.sampled_from(["gpu"] * 12 + ["odd", "odd", "none", ""]),
    "allocationMode": st.sampled_from(["ExactCount"] * 5 + ["All", "All", "", "x"]),
    "count": numbers,
}
more = {
    "selectors": selectors,
    "capacity": st.fixed_dictionaries({"requests": st.dictionaries(names, amounts, max_size=2)}),
    "tolerations": st.lists(
        st.fixed_dictionaries({"key": names, "operator": st.sampled_from(["Exists", "", "x"])}), max_size=1
    ),
    "derivedAttributes": st.lists(st.fixed_dictionaries({"name": names, "expression": expressions}), max_size=1),
}
exact = st.fixed_dictionaries(asked, optional={**more, "adminAccess": st.booleans()})
alternatives = st.lists(st.fixed_dictionaries({"name": names, **asked}, optional=more), max_size=2)
requests = st.one_of(
    st.fixed_dictionaries({"name": names, "exactly": exact}),
    st.fixed_dictionaries({"name": names, "firstAvailable": alternatives}),
    st.fixed_dictionaries({"name": names}, optional={"exactly": exact, "firstAvailable": alternatives}),
)
specs = st.fixed_dictionaries(
    {"requests": st.lists(requests, max_size=3)},
    optional={
        "constraints": st.lists(
            st.fixed_dictionaries(
                {"requests": st.lists(names, max_size=2)},
                optional={"matchAttribute": names, "distinctAttribute": names},
            ),
            max_size=2,
        )
    },
)
results = st.fixed_dictionaries(
    {"request": names, "driver": st.just(DRIVER), "pool": names, "device": names},
    optional={
        "shareID": names,
        "consumedCapacity": st.dictionaries(names, amounts, max_size=1),
        "adminAccess": st.booleans(),
        "bindingConditions": st.lists(names, max_size=1),
    },
)
statuses = st.fixed_dictionaries(
    {},
    optional={
        "allocation": st.fixed_dictionaries(
            {"devices": st.fixed_dictionaries({"results": st.lists(results, max_size=3)})},
            optional={"nodeSelector": node_selectors, "allocationTimestamp": st.just("2026-01-01T00:00:00Z")},
        ),
        "reservedFor": st.lists(st.fixed_dictionaries({"resource": names, "name": names, "uid": names}), max_size=2),
    },
)


def filled(gates: FeatureGates, published: list[Any], claimed: list[tuple[Any, Any]]) -> tuple[Claims, list[str]]:
    claims = Claims(gates, steps_max=2000)
    claims.put_class(
        decode(
            {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}, api.DeviceClass
        ).object
    )
    odd = {"selectors": [{"cel": {"expression": "device.attributes['gpu.example.com'].a == 1"}}]}
    claims.put_class(decode({"metadata": {"name": "odd"}, "spec": odd}, api.DeviceClass).object)
    for number, spec in enumerate(published):
        claims.put_slice(decode({"metadata": {"name": f"s{number}"}, "spec": spec}, api.ResourceSlice).object)
    made = []
    for number, (spec, status) in enumerate(claimed):
        metadata = {"name": f"c{number}", "namespace": NAMESPACE, "uid": f"u{number}", "resourceVersion": "x"}
        body = {"metadata": metadata, "spec": {"devices": spec}, "status": status}
        claims.put_claim(decode(body, api.ResourceClaim).object)
        made.append(f"c{number}")
    return claims, made


@pytest.mark.slow
@settings(max_examples=400)
@given(
    st.sampled_from([DEFAULT_GATES, ALL_GATES]),
    st.lists(slices, max_size=3),
    st.lists(st.tuples(specs, statuses), min_size=1, max_size=3),
    st.booleans(),
)
def test_whatever_is_published_and_claimed_there_is_an_answer(
    gates: FeatureGates, published: list[Any], claimed: list[tuple[Any, Any]], extended: bool
) -> None:
    claims, made = filled(gates, published, claimed)
    containers = (container("a", cpu="1", **({"gpu": "1"} if extended else {})),)
    asking = pod("p", *made, containers=containers)
    fit = claims.fit(asking, now=2e9)
    for name in made:
        claims.double_allocations(NAMESPACE, name)
    if not isinstance(fit, ClaimFit):
        assert fit is None or fit.reasons
        return
    hash(fit.key)
    refused: dict[str, Status] = {}
    for where in (node("n1", cpu="4", labels={"a": "b"}), node("n2")):
        quick, answer = fit.quick(where), fit.exact(where)
        assert quick is None or answer is not None, "quick must not hide what exact accepts"
        fit.rank(where)
        fit.occupancy(where)
        if answer is None:
            steps, new, accounted = fit.steps(where)
            placement = Placement(pod=asking, node=where.name, claims=steps, extended=new, node_allocatable=accounted)
            claims.assume(placement)
            claims.forget(placement)
        else:
            assert answer.reasons[0]
            refused[where.name] = answer
    fit.clean_ups(refused)
    fit.explanation([node("n1"), node("n2")])
