"""Changes to expressions and classes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from allot.core.advice.explain.causes.vendors import are_rivals, vendor_of
from allot.core.advice.explain.devices import Wanted, expected_drivers
from allot.core.advice.explain.diagnosis import (
    Candidate,
    ClaimPlace,
    Rank,
    patch_of,
    place_of_claim,
    pointer,
    request_path,
)
from allot.core.advice.explain.rewrites import DRIVER_LIKENESS_MIN, Rewrite
from allot.core.advice.explain.wording import one_line
from allot.core.advice.nearest import nearest
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api

_OTHERS_MAX = 4
_WORD = re.compile(r"[^a-z0-9]+")
# What says nothing about a device.
_DOMAINS = frozenset(("com", "io", "dev", "net", "org", "k8s", "kubernetes", "example", "resource"))
_SAME_WORDS_MIN = 2
# For a name that is part of a vendor's domain: gpu.example.com.
_LABELS_MIN = 3


def own_selector(place: ClaimPlace, wanted: Wanted, index: int, found: Iterable[Rewrite]) -> Iterator[Candidate]:
    """Another expression for a selector of a request."""
    path = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/selectors/{index}/cel/expression"
    for rewrite in found:
        patch = place.patch({"op": "replace", "path": path, "value": rewrite.expression})
        yield Candidate(
            rank=rewrite.rank,
            text=f"{rewrite.text} in request {wanted.leaf.full_name} of {place.spoken}",
            patches=(patch,),
            expression=rewrite.expression,
        )


def without_selectors(place: ClaimPlace, wanted: Wanted) -> Iterator[Candidate]:
    """Without one of the selectors."""
    base = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/selectors"
    selectors = wanted.leaf.request.selectors
    for index, selector in enumerate(selectors):
        path = base if len(selectors) == 1 else f"{base}/{index}"
        expression = one_line(selector.cel.expression) if selector.cel is not None else ""
        text = f"drop selector {expression} from request {wanted.leaf.full_name} of {place.spoken}"
        yield Candidate(rank=Rank.DROP, text=text, patches=(place.patch({"op": "remove", "path": path}),))


def class_selector(class_: api.DeviceClass, index: int, found: Iterable[Rewrite]) -> Iterator[Candidate]:
    """Another expression for a selector of a class."""
    name = class_.metadata.name
    for rewrite in found:
        operation = {"op": "replace", "path": f"/spec/selectors/{index}/cel/expression", "value": rewrite.expression}
        yield Candidate(
            rank=rewrite.rank,
            text=f"{rewrite.text} in DeviceClass {name}",
            patches=(patch_of("DeviceClass", name, operation),),
            expression=rewrite.expression,
        )


# --- classes ---


def other_class(what_if: WhatIfCluster, pod: core_v1.Pod, wanted: Wanted) -> Iterator[Candidate]:
    """A class with a similar name for a request."""
    place = place_of_claim(what_if, pod, wanted.claim)
    meant = similar_class(what_if, wanted.class_name)
    if place is not None and meant is not None:
        yield with_class(place, wanted.claim.spec, wanted.leaf.full_name, meant, Rank.FIX)


def similar_class(what_if: WhatIfCluster, wrong: str, but: Iterable[str] = ()) -> str | None:
    """The class that a misspelt name may mean. but: those that it cannot mean."""
    names = [name for name in _class_names(what_if) if name not in (wrong, *but)]
    same = next((name for name in names if _same_words(wrong, name)), None)
    return nearest(wrong, [name for name in names if not _of_others(wrong, name)]) or same


def _same_words(one: str, other: str) -> bool:
    """Whether a name has the words of another one, as amd-gpu.rocm.io and gpu.amd.com have: vendor and kind of device."""
    ours, theirs = ({*_WORD.split(name.lower())} - _DOMAINS for name in (one, other))
    return min(len(ours), len(theirs)) >= _SAME_WORDS_MIN and (ours <= theirs or theirs <= ours)


def beside(spec: api.ResourceClaimSpec, request: str) -> list[str]:
    """The classes of the other alternatives of a request: a second copy of one of them would be no alternative."""
    parent, _, alternative = request.partition("/")
    return [
        leaf.device_class_name
        for each in spec.devices.requests
        if alternative and each.name == parent
        for leaf in each.first_available
        if leaf.name != alternative
    ]


def _of_others(wrong: str, name: str) -> bool:
    """Whether two domain names differ in whole, dissimilar labels, such as gpu.intel.com and gpu.nvidia.com: another
    vendor's class is not a misspelling."""
    ours, theirs = wrong.split("."), name.split(".")
    if len(ours) != len(theirs) or len(ours) < _LABELS_MIN:
        return False
    pairs = [(our, their) for our, their in zip(ours, theirs, strict=True) if our != their]
    return any(nearest(our, [their]) is None for our, their in pairs)


def _class_names(what_if: WhatIfCluster) -> list[str]:
    return sorted(class_.metadata.name for class_ in what_if.all(api.DeviceClass))


def with_class(place: ClaimPlace, spec: api.ResourceClaimSpec, request: str, name: str, rank: int) -> Candidate:
    """Another class for a request."""
    patch = place.patch({"op": "replace", "path": f"{request_path(spec, request)}/deviceClassName", "value": name})
    return Candidate(rank=rank, text=f"ask for class {name} in request {request} of {place.spoken}", patches=(patch,))


def missing_class(
    what_if: WhatIfCluster, pod: core_v1.Pod, claim: api.ResourceClaim, request: str, name: str
) -> Iterator[Candidate]:
    """For a missing class: use another one, or create it."""
    place = place_of_claim(what_if, pod, claim)
    others = beside(claim.spec, request)
    meant = similar_class(what_if, name, others)
    # A class named after a driver is installed with that driver.
    of_a_driver = "." in name
    if place is not None:
        for other in _class_names(what_if)[:_OTHERS_MAX]:
            if other == meant or (not of_a_driver and other not in others):
                yield with_class(place, claim.spec, request, other, Rank.FIX if other == meant else Rank.DROP)
        yield from _without_alternative(place, claim.spec, request)
    there = {slice_.spec.driver for slice_ in what_if.all(api.ResourceSlice)}
    # A class for parts of devices is not one for all devices of the driver.
    drivers = sorted(each for each in there if not of_a_driver or not _of_others(name, each) or _same_words(name, each))
    similar = nearest(name, drivers, likeness_min=DRIVER_LIKENESS_MIN) if of_a_driver else nearest(name, drivers)
    similar = similar or next((each for each in drivers if _same_words(name, each)), None)
    more = [] if of_a_driver else drivers
    for driver in dict.fromkeys([*([similar] if similar is not None else []), *more]):
        expression = f'device.driver == "{driver}"'
        yield Candidate(
            rank=Rank.CREATE,
            text=f"create DeviceClass {name} for the devices of driver {driver}",
            patches=(Patch(action="create", object=_class_object(name, expression)),),
            expression=expression,
        )


def _without_alternative(place: ClaimPlace, spec: api.ResourceClaimSpec, request: str) -> Iterator[Candidate]:
    """The other alternatives of a request: every class must exist, whichever alternative is chosen."""
    parent, _, alternative = request.partition("/")
    count = next((len(each.first_available) for each in spec.devices.requests if each.name == parent), 0)
    if alternative and count > 1:
        patch = place.patch({"op": "remove", "path": request_path(spec, request)})
        text = f"drop alternative {alternative} from request {parent} of {place.spoken}"
        yield Candidate(rank=Rank.RELAX, text=text, patches=(patch,))


def _class_object(name: str, expression: str) -> dict[str, object]:
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def known_resources(what_if: WhatIfCluster, wrong: str) -> list[str]:
    """Extended resources that nodes offer or classes serve, and that a wrong name may mean: another vendor's is not a misspelling."""
    scalars = (info.allocatable_scalars for info in what_if.cluster.nodes.values())
    # A node keeps the name, with 0 of it, when its device plugin has gone.
    found = {name for each in scalars for name, amount in each.items() if amount and "/" in name}
    for class_ in what_if.all(api.DeviceClass):
        found.add(class_.spec.extended_resource_name or api.IMPLICIT_EXTENDED_RESOURCE_PREFIX + class_.metadata.name)
        found.add(api.IMPLICIT_EXTENDED_RESOURCE_PREFIX + class_.metadata.name)
    return sorted(name for name in found if not _of_another_vendor(wrong, name))


def _of_another_vendor(wrong: str, name: str) -> bool:
    """Whether an extended resource is that of another vendor: amd.com/gpu is not nvidia.com/gpu, but nvdia.com/gpu may be."""
    prefix = api.IMPLICIT_EXTENDED_RESOURCE_PREFIX
    own = wrong.removeprefix(prefix) if wrong.startswith(prefix) else wrong.partition("/")[0]
    other = name.removeprefix(prefix)
    vendor = vendor_of(own)
    if are_rivals(own, other):
        return True
    return "." in own and vendor not in _DOMAINS and nearest(vendor, _WORD.split(other.lower())) is None


def classes_of_vendor(what_if: WhatIfCluster, resource: str) -> list[str]:
    """Classes for the devices of an extended resource, by vendor and kind, that do not name it; the most similar first."""
    domain, _, rest = resource.lower().partition("/")
    kinds = {*_WORD.split(rest)}
    found = []
    for class_ in what_if.all(api.DeviceClass):
        name, drivers = class_.metadata.name, expected_drivers(class_)
        of_domain = [
            each
            for each in (name, *drivers)
            if f".{each}".endswith(f".{domain}") or vendor_of(domain) in {*_WORD.split(each)} - _DOMAINS
        ]
        alike = [each for each in (name, *drivers) if kinds & {*_WORD.split(each)}]
        if of_domain and alike and class_.spec.extended_resource_name is None:
            found.append((name != f"{rest}.{domain}", name not in alike, len(name), name))
    return [name for *_, name in sorted(found)]


def renamed_resource(pod: core_v1.Pod, wrong: str, right: str | None) -> Iterator[Candidate]:
    """Another name for an extended resource in the pod."""
    if right is None:
        return
    operations = []
    for member, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for index, container in enumerate(containers):
            for part, amounts in (("requests", container.resources.requests), ("limits", container.resources.limits)):
                if wrong in amounts:
                    path = f"/spec/{member}/{index}/resources/{part}"
                    operations.append({"op": "add", "path": f"{path}/{pointer(right)}", "value": str(amounts[wrong])})
                    operations.append({"op": "remove", "path": f"{path}/{pointer(wrong)}"})
    metadata = pod.metadata
    patch = patch_of("Pod", metadata.name, *operations, namespace=metadata.namespace, recreate=True)
    yield Candidate(rank=Rank.FIX, text=f"ask for {right} instead of {wrong} in the pod", patches=(patch,))


def fewer_of_resource(pod: core_v1.Pod, resource: str, numbers: Iterable[int]) -> Iterator[Candidate]:
    """Less of an extended resource in every container that asks for more."""
    asking = [
        (f"/spec/{member}/{index}/resources/{part}/{pointer(resource)}", container.name, amounts[resource].value())
        for member, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers))
        for index, container in enumerate(containers)
        for part, amounts in (("requests", container.resources.requests), ("limits", container.resources.limits))
        if resource in amounts
    ]
    for number in sorted({each for each in numbers if each > 0}, reverse=True):
        more = [(path, name, asked) for path, name, asked in asking if asked > number]
        operations = [{"op": "replace", "path": path, "value": str(number)} for path, _, _ in more]
        if operations:
            metadata = pod.metadata
            patch = patch_of("Pod", metadata.name, *operations, namespace=metadata.namespace, recreate=True)
            where = (
                "the pod"
                if len(pod.spec.init_containers) + len(pod.spec.containers) == 1
                else f"container {more[0][1]}"
            )
            text = f"ask for {number} {resource} instead of {more[0][2]} in {where}"
            yield Candidate(rank=Rank.FEWER, text=text, patches=(patch,))


def without_resource(pod: core_v1.Pod, resource: str) -> Iterator[Candidate]:
    """Drop an extended resource from a pod."""
    operations = [
        {"op": "remove", "path": f"/spec/{member}/{index}/resources/{part}/{pointer(resource)}"}
        for member, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers))
        for index, container in enumerate(containers)
        for part, amounts in (("requests", container.resources.requests), ("limits", container.resources.limits))
        if resource in amounts
    ]
    metadata = pod.metadata
    patch = patch_of("Pod", metadata.name, *operations, namespace=metadata.namespace, recreate=True)
    yield Candidate(rank=Rank.FIX, text=f"do not ask for {resource} in the pod, which has a claim", patches=(patch,))


def from_template(what_if: WhatIfCluster, pod: core_v1.Pod, resource: str, number: int) -> Iterator[Candidate]:
    """A claim from a template that the pod's namespace has, instead of an extended resource that one container asks for."""
    containers = pod.spec.containers
    asking = [
        index for index, each in enumerate(containers) if resource in {*each.resources.requests, *each.resources.limits}
    ]
    templates = [
        each
        for each in what_if.all(api.ResourceClaimTemplate)
        if each.metadata.namespace == pod.metadata.namespace and _is_plain(what_if, each, resource, number)
    ]
    if len(asking) != 1 or not templates or pod.spec.resource_claims:
        return
    name, index = templates[0].metadata.name, asking[0]
    resources = containers[index].resources
    path = f"/spec/containers/{index}/resources"
    operations: list[dict[str, object]] = [
        {"op": "remove", "path": f"{path}/{part}/{pointer(resource)}"}
        for part, amounts in (("requests", resources.requests), ("limits", resources.limits))
        if resource in amounts
    ]
    operations += [
        {"op": "add", "path": f"{path}/claims", "value": [{"name": "devices"}]},
        {
            "op": "add",
            "path": "/spec/resourceClaims",
            "value": [{"name": "devices", "resourceClaimTemplateName": name}],
        },
    ]
    metadata = pod.metadata
    patch = patch_of("Pod", metadata.name, *operations, namespace=metadata.namespace, recreate=True)
    text = f"use a claim from ResourceClaimTemplate {metadata.namespace}/{name} instead of {resource} in the pod"
    yield Candidate(rank=Rank.ADMIN + 1, text=text, patches=(patch,))


def _is_plain(what_if: WhatIfCluster, template: api.ResourceClaimTemplate, resource: str, number: int) -> bool:
    """Whether a template asks for a number of devices of the vendor of an extended resource, and for nothing else."""
    requests = template.spec.spec.devices.requests
    exact = requests[0].exactly if len(requests) == 1 else None
    class_ = what_if.get(api.DeviceClass, exact.device_class_name) if exact is not None else None
    vendor = resource.partition("/")[0].partition(".")[0]
    return (
        exact is not None
        and class_ is not None
        and vendor in class_.metadata.name.split(".")
        and not exact.selectors
        and (exact.allocation_mode or api.EXACT_COUNT) == api.EXACT_COUNT
        and (exact.count or 1) == number
    )


def older_classes(what_if: WhatIfCluster, resource: str, name: str) -> list[str]:
    """Other classes with the same extended resource: the newest one provides it."""
    return sorted(
        class_.metadata.name
        for class_ in what_if.all(api.DeviceClass)
        if resource and class_.spec.extended_resource_name == resource and class_.metadata.name != name
    )


def not_for_resource(name: str, resource: str, older: Sequence[str]) -> Iterator[Candidate]:
    """Drop an extended resource from a class. older: the classes that have it, too."""
    patch = patch_of("DeviceClass", name, {"op": "remove", "path": "/spec/extendedResourceName"})
    # kube-scheduler's cache forgets the name, and learns it again from the next event of another class (extendedresourcecache.go, 1.36).
    touch = f"kubectl annotate deviceclass {older[0]} touched=1"
    text = f"remove extendedResourceName: {resource} from DeviceClass {name}, then change {older[0]} in any way ({touch}): kube-scheduler maps the name to it only then"
    yield Candidate(rank=Rank.FIX - 1, text=text, patches=(patch,))


def extended_resource(what_if: WhatIfCluster, resource: str, meant: str | None) -> Iterator[Candidate]:
    """Classes that could provide an extended resource. meant: what it may be a misspelling of."""
    names = classes_of_vendor(what_if, resource)
    if not names:
        first = nearest(resource, _class_names(what_if), likeness_min=0.3)
        names = sorted(_class_names(what_if), key=lambda each: each != first)
    for name in names[:_OTHERS_MAX]:
        class_ = what_if.get(api.DeviceClass, name)
        if class_ is None or class_.spec.extended_resource_name is not None:
            continue
        if any(are_rivals(f"{resource} {meant}", each) for each in (name, *expected_drivers(class_))):
            continue
        operation = {"op": "add", "path": "/spec/extendedResourceName", "value": resource}
        yield Candidate(
            rank=Rank.ADMIN,
            text=f"set extendedResourceName: {resource} in DeviceClass {name}",
            patches=(patch_of("DeviceClass", name, operation),),
        )
