"""Every rule: its stable name, its default severity, and what it finds."""

from __future__ import annotations

import msgspec

from allot.core.advice.lint.finding import Severity

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


class Rule(msgspec.Struct, frozen=True):
    """One rule. topic: the heading that it is documented under."""

    name: str
    severity: Severity
    topic: str
    what: str


_TEXT = "The text"
_SERVER = "What the API server says"
_SELECTORS = "Selectors"
_NAMES = "Names"
_CLAIMS = "Claims"
_PODS = "Pods"
_QUEUES = "Queues"
_CLASSES = "ComputeClasses"

RULES: tuple[Rule, ...] = (
    Rule("not-yaml", _ERROR, _TEXT, "a document is unreadable"),
    Rule("document-separator", _ERROR, _TEXT, "documents are separated by dashes that are not hyphens"),
    Rule("typographic-character", _ERROR, _TEXT, "a bullet, space or quote only looks like the one in YAML and CEL"),
    Rule("not-an-object", _ERROR, _TEXT, "a document is not a Kubernetes object: apiVersion or kind is missing"),
    Rule("duplicate-object", _WARNING, _TEXT, "an object appears twice, and the second replaces the first"),
    Rule("unknown-kind", _ERROR, _SERVER, "the API server has no such kind"),
    Rule("old-api-version", _WARNING, _SERVER, "the API version is deprecated, or no longer served (an error)"),
    Rule("old-form", _ERROR, _SERVER, "a field of an API version that is no longer served"),
    Rule("unknown-field", _ERROR, _SERVER, "the kind has no such field, so it would be dropped or refused"),
    Rule("invalid-value", _ERROR, _SERVER, "the API server would refuse a value"),
    Rule("cel-error", _ERROR, _SERVER, "an expression does not compile"),
    Rule("cel-cost", _ERROR, _SERVER, "an expression may cost more than the API server allows"),
    Rule("server-warning", _WARNING, _SERVER, "the API server would accept the object with a warning"),
    Rule("admin-access", _ERROR, _SERVER, "a claim asks for admin access in a namespace without the label for it"),
    Rule("foreign-pod-group", _WARNING, _SERVER, "a PodGroup belongs to another scheduler, and kube-scheduler ignores it"),
    Rule("text-compared-as-size", _ERROR, _SELECTORS, "sizes are compared as text, alphabetically"),
    Rule("text-compared-as-version", _ERROR, _SELECTORS, "versions are compared as text, alphabetically"),
    Rule("capacity-equality", _NOTE, _SELECTORS, "a capacity must equal one value"),
    Rule("missing-attribute", _WARNING, _SELECTORS, "an expression fails on devices that lack an attribute or capacity"),
    Rule("selector-error", _WARNING, _SELECTORS, "an expression fails on known devices for another reason"),
    Rule("missing-domain", _WARNING, _SELECTORS, "an attribute or capacity is looked up without its domain"),
    Rule("unknown-domain", _WARNING, _SELECTORS, "no known device has anything in the domain"),
    Rule("unknown-attribute", _WARNING, _SELECTORS, "no known device of the driver has the attribute"),
    Rule("unknown-capacity", _WARNING, _SELECTORS, "no known device of the driver has the capacity"),
    Rule("unknown-value", _WARNING, _SELECTORS, "no known device has the value, but some have a similar one"),
    Rule("unknown-driver", _WARNING, _NAMES, "no known device has the driver"),
    Rule("unknown-device-class", _WARNING, _NAMES, "a request refers to an unknown DeviceClass"),
    Rule("unknown-template", _NOTE, _NAMES, "a pod refers to an unknown ResourceClaimTemplate"),
    Rule("unknown-claim", _NOTE, _NAMES, "a pod refers to an unknown ResourceClaim"),
    Rule("unknown-request", _WARNING, _NAMES, "a container refers to a request that its claim does not have"),
    Rule("sharing-in-template", _WARNING, _CLAIMS, "a template configures sharing, although each pod gets its own devices"),
    Rule("unknown-config", _ERROR, _CLAIMS, "the driver would refuse the opaque configuration"),
    Rule("all-in-alternative", _WARNING, _CLAIMS, "an alternative asks for all devices, however many there are"),
    Rule("unreachable-alternative", _WARNING, _CLAIMS, "an alternative asks for at least as much as an earlier one"),
    Rule("constraint-without-effect", _WARNING, _CLAIMS, "a constraint concerns a single device"),
    Rule("constraint-attribute", _WARNING, _CLAIMS, "a constraint is about an attribute that known devices lack"),
    Rule("class-without-selectors", _WARNING, _CLAIMS, "a device class selects every device of every driver"),
    Rule("missing-toleration", _WARNING, _CLAIMS, "the only devices that fit have a taint that is not tolerated"),
    Rule("unsatisfiable-claim", _WARNING, _CLAIMS, "no known node has the devices, even when all are free"),
    Rule("unused-claim", _NOTE, _PODS, "no pod of the input uses a claim or template"),
    Rule("unused-pod-claim", _WARNING, _PODS, "a pod has a claim that none of its containers uses"),
    Rule("containers-share-claim", _NOTE, _PODS, "several containers use the same devices"),
    Rule("replicas-share-claim", _WARNING, _PODS, "all replicas refer to one claim and therefore share its devices"),
    Rule("surge-needs-devices", _WARNING, _PODS, "a rolling update starts a pod before an old one releases its devices"),
    Rule("group-priority", _WARNING, _PODS, "a pod and its PodGroup have different priorities"),
    Rule("group-minimum", _WARNING, _PODS, "a PodGroup needs more pods at once than the input creates"),
    Rule("extended-resource-and-claim", _WARNING, _PODS, "a pod requests the same hardware twice: as an extended resource and with a claim"),
    Rule("unknown-queue", _WARNING, _QUEUES, "a pod, a PodGroup or a queue refers to an unknown queue"),
    Rule("queue-limit", _WARNING, _QUEUES, "the limit of a queue is below its quota"),
    Rule("queue-children", _WARNING, _QUEUES, "the quotas of queues add up to more than that of their parent"),
    Rule("unknown-compute-class", _WARNING, _CLASSES, "a pod selects an unknown ComputeClass"),
    Rule("compute-class-conflict", _ERROR, _CLASSES, "a pod selects a ComputeClass and something that the class decides"),
    Rule("unknown-node-pool", _WARNING, _CLASSES, "a priority of a ComputeClass names an unknown pool"),
    Rule("unknown-machine", _WARNING, _CLASSES, "a priority of a ComputeClass names an unknown machine"),
    Rule("compute-class-order", _WARNING, _CLASSES, "the priorities of a ComputeClass and the alternatives of a claim are in different orders"),
)  # fmt: skip

BY_NAME = {rule.name: rule for rule in RULES}
