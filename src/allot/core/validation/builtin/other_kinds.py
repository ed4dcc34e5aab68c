"""Kinds with defaults but few rules: networking, CSI, admission registration, flow control, certificates.

Their validation is what their schema says; upstream checks more.
"""

from __future__ import annotations

from collections.abc import Callable

from allot.core.validation import formats
from allot.core.validation.builtin.checks import immutable, named
from allot.core.validation.builtin.pod_defaults import canonical_quantities
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import Object, copied, fill, fill_text, items, members, present, text
from allot.core.validation.fields import Findings, required


def _fixed(*paths: str) -> Callable[[Object, Object, str], Findings]:
    """Fields, as dotted paths, that are what they were when the object was made."""

    def check(new: Object, old: Object, subresource: str) -> Findings:
        found: Findings = []
        for path in paths if not subresource else ():
            *parents, name = path.split(".")
            found += immutable(members(new, *parents).get(name), members(old, *parents).get(name), path)
        return found

    return check


# --- networking ---


def _network_policy_defaults(policy: Object) -> None:
    spec = present(policy, "spec")
    fill(spec, podSelector={})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in items(spec, "ingress") + items(spec, "egress"):
        for port in items(rule, "ports"):
            fill_text(port, protocol="TCP")


def _ingress_class_defaults(class_: Object) -> None:
    parameters = members(class_, "spec").get("parameters")
    if isinstance(parameters, dict):
        fill_text(parameters, scope="Cluster")


NETWORK_POLICY = Rules(defaults=_network_policy_defaults, generation_of=("spec",))
INGRESS = Rules(
    defaults=lambda o: fill(o, spec={}), initial_status=lambda _: {"loadBalancer": {}}, generation_of=("spec",)
)
INGRESS_CLASS = Rules(defaults=_ingress_class_defaults, generation_of=("spec",), check_update=_fixed("spec.controller"))
IP_ADDRESS = Rules(check_update=_fixed("spec.parentRef"))

# --- storage ---


def _csi_driver_defaults(driver: Object) -> None:
    fill(
        present(driver, "spec"),
        attachRequired=True,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        podInfoOnMount=False,
        preventPodSchedulingIfMissing=False,
        requiresRepublish=False,
        seLinuxMount=False,
        storageCapacity=False,
    )
    spec = members(driver, "spec")
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


CSI_DRIVER = Rules(defaults=_csi_driver_defaults)
VOLUME_ATTACHMENT = Rules(initial_status=lambda _: {"attached": False}, check_update=_fixed("spec"))
VOLUME_ATTRIBUTES_CLASS = Rules(check_update=_fixed("driverName", "parameters"))
CSI_NODE = Rules(defaults=lambda o: fill(present(o, "spec"), drivers=None))

# --- admissionregistration ---


def _selection_defaults(value: Object) -> None:
    fill_text(value, matchPolicy="Equivalent")
    fill(value, namespaceSelector={}, objectSelector={})
    for name in ("rules", "resourceRules", "excludeResourceRules"):
        for rule in items(value, name):
            fill_text(rule, scope="*")


def _webhook_defaults(configuration: Object) -> None:
    for webhook in items(configuration, "webhooks"):
        fill_text(webhook, failurePolicy="Fail")
        fill(webhook, timeoutSeconds=10)
        _selection_defaults(webhook)
        if configuration.get("kind") == "MutatingWebhookConfiguration":
            fill_text(webhook, reinvocationPolicy="Never")
        service = members(webhook, "clientConfig").get("service")
        if isinstance(service, dict):
            fill(service, port=443)


def _policy_defaults(policy: Object) -> None:
    spec = present(policy, "spec")
    fill_text(spec, failurePolicy="Fail")
    if isinstance(spec.get("matchConstraints"), dict):
        _selection_defaults(spec["matchConstraints"])


def _policy_binding_defaults(binding: Object) -> None:
    resources = members(binding, "spec").get("matchResources")
    if isinstance(resources, dict):
        _selection_defaults(resources)


WEBHOOKS = Rules(defaults=_webhook_defaults, generation_of=("webhooks",))
ADMISSION_POLICY = Rules(defaults=_policy_defaults, initial_status=lambda _: {}, generation_of=("spec",))
MUTATING_POLICY = Rules(defaults=_policy_defaults, generation_of=("spec",))
POLICY_BINDING = Rules(defaults=_policy_binding_defaults, generation_of=("spec",))

# --- flow control ---


def _flow_schema_defaults(schema: Object) -> None:
    spec = present(schema, "spec")
    if not spec.get("matchingPrecedence"):
        spec["matchingPrecedence"] = 1000


def _priority_level_defaults(level: Object) -> None:
    spec = present(level, "spec")
    if isinstance(spec.get("exempt"), dict):
        fill(spec["exempt"], nominalConcurrencyShares=0, lendablePercent=0)
    limited = spec.get("limited")
    if isinstance(limited, dict):
        fill(limited, nominalConcurrencyShares=30, lendablePercent=0)
        queuing = members(limited, "limitResponse").get("queuing")
        if isinstance(queuing, dict):
            for name, default in (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)):
                if not queuing.get(name):
                    queuing[name] = default


FLOW_SCHEMA = Rules(
    name_format=formats.path_segment,
    defaults=_flow_schema_defaults,
    initial_status=lambda _: {},
    generation_of=("spec",),
)
PRIORITY_LEVEL = Rules(
    name_format=formats.path_segment,
    defaults=_priority_level_defaults,
    initial_status=lambda _: {},
    generation_of=("spec",),
)

# --- certificates, node, apiregistration ---


def _check_signing_request(request: Object) -> Findings:
    found = [] if text(request, "spec", "request") else [required("spec.request")]
    return found + named(text(request, "spec", "signerName"), "spec.signerName", formats.label_key)


_DECISIONS = ("Approved", "Denied")


def _changed_signing_request(new: Object, old: Object, subresource: str) -> None:
    """What was asked for never changes; whoever approves decides, and whoever signs reports, but neither the other's."""
    new["spec"] = copied(members(old, "spec"))
    status, before = members(new, "status"), copied(members(old, "status"))
    if subresource == "approval":
        new["status"] = before | {"conditions": status.get("conditions") or []}
    elif subresource == "status":
        decided = [item for item in items(before, "conditions") if item.get("type") in _DECISIONS]
        reported = [item for item in items(status, "conditions") if item.get("type") not in _DECISIONS]
        if decided or reported:
            new["status"] = {**status, "conditions": decided + reported}


def _runtime_class_defaults(class_: Object) -> None:
    canonical_quantities(members(class_, "overhead").get("podFixed"))


def _check_runtime_class(class_: Object) -> Findings:
    return named(text(class_, "handler"), "handler", formats.dns_label)


SIGNING_REQUEST = Rules(
    name_format=formats.path_segment,
    initial_status=lambda _: {},
    prepare_update=_changed_signing_request,
    check=_check_signing_request,
)
TRUST_BUNDLE = Rules(name_format=formats.path_segment, check_update=_fixed("spec.signerName"))
POD_CERTIFICATE_REQUEST = Rules(initial_status=lambda _: {}, check_update=_fixed("spec"))
RUNTIME_CLASS = Rules(defaults=_runtime_class_defaults, check=_check_runtime_class, check_update=_fixed("handler"))
API_SERVICE = Rules(defaults=lambda o: fill(o, spec={}, status={}))
CUSTOM_RESOURCE_DEFINITION = Rules(generation_of=("spec",))
