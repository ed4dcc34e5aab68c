"""Every rule: its name, which never changes, how bad a finding is unless more is known, and what it is about."""

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
    Rule("not-yaml", _ERROR, _TEXT, "a document cannot be read"),
    Rule("document-separator", _ERROR, _TEXT, "documents are separated by dashes that are not hyphens"),
    Rule("typographic-character", _ERROR, _TEXT, "a bullet, space or quote only looks like the one that YAML and CEL know"),
    Rule("not-an-object", _ERROR, _TEXT, "a document is not a Kubernetes object: apiVersion or kind is missing"),
    Rule("duplicate-object", _WARNING, _TEXT, "an object appears twice, and the second replaces the first"),
    Rule("unknown-kind", _ERROR, _SERVER, "the API server has no such kind"),
    Rule("old-api-version", _WARNING, _SERVER, "the API version is deprecated, or no longer served (an error)"),
    Rule("old-form", _ERROR, _SERVER, "a field of an API version that is no longer served"),
    Rule("unknown-field", _ERROR, _SERVER, "the kind has no such field, so it would be dropped or refused"),
    Rule("invalid-value", _ERROR, _SERVER, "the API server would refuse a value"),
    Rule("cel-error", _ERROR, _SERVER, "an expression does not compile"),
    Rule("cel-cost", _ERROR, _SERVER, "an expression may cost more than the API server allows"),
    Rule("server-warning", _WARNING, _SERVER, "the API server would take the object with a warning"),
    Rule("admin-access", _ERROR, _SERVER, "a claim asks for admin access in a namespace that is not labelled for it"),
    Rule("foreign-pod-group", _WARNING, _SERVER, "a PodGroup belongs to another scheduler and means nothing to kube-scheduler"),
    Rule("text-compared-as-size", _ERROR, _SELECTORS, "sizes are compared as text, alphabetically"),
    Rule("text-compared-as-version", _ERROR, _SELECTORS, "versions are compared as text, alphabetically"),
    Rule("capacity-equality", _NOTE, _SELECTORS, "a capacity has to be exactly one value"),
    Rule("missing-attribute", _WARNING, _SELECTORS, "an expression fails on devices that lack an attribute or capacity"),
    Rule("selector-error", _WARNING, _SELECTORS, "an expression fails on known devices for another reason"),
    Rule("missing-domain", _WARNING, _SELECTORS, "an attribute or capacity is asked for without its domain"),
    Rule("unknown-domain", _WARNING, _SELECTORS, "no known device has anything in the domain"),
    Rule("unknown-attribute", _WARNING, _SELECTORS, "no known device of the driver has the attribute"),
    Rule("unknown-capacity", _WARNING, _SELECTORS, "no known device of the driver has the capacity"),
    Rule("unknown-value", _WARNING, _SELECTORS, "no known device has the value, but some have one like it"),
    Rule("unknown-driver", _WARNING, _NAMES, "no known device has the driver"),
    Rule("unknown-device-class", _WARNING, _NAMES, "a request names a device class that is not known"),
    Rule("unknown-template", _NOTE, _NAMES, "a pod names a claim template that is not known"),
    Rule("unknown-claim", _NOTE, _NAMES, "a pod names a claim that is not known"),
    Rule("unknown-request", _WARNING, _NAMES, "a container names a request that its claim does not have"),
    Rule("sharing-in-template", _WARNING, _CLAIMS, "a template has a sharing config, though each pod gets devices of its own"),
    Rule("unknown-config", _ERROR, _CLAIMS, "the driver would refuse the opaque configuration"),
    Rule("all-in-alternative", _WARNING, _CLAIMS, "an alternative wants all devices, however many or few these are"),
    Rule("unreachable-alternative", _WARNING, _CLAIMS, "an alternative asks for no less than one before it"),
    Rule("constraint-without-effect", _WARNING, _CLAIMS, "a constraint concerns a single device"),
    Rule("constraint-attribute", _WARNING, _CLAIMS, "a constraint is about an attribute that known devices lack"),
    Rule("class-without-selectors", _WARNING, _CLAIMS, "a device class selects every device of every driver"),
    Rule("missing-toleration", _WARNING, _CLAIMS, "the only devices that fit have a taint that is not tolerated"),
    Rule("unsatisfiable-claim", _WARNING, _CLAIMS, "no known node has the devices, even when all are free"),
    Rule("unused-claim", _NOTE, _PODS, "no pod of the input uses a claim or template"),
    Rule("unused-pod-claim", _WARNING, _PODS, "a pod has a claim that none of its containers uses"),
    Rule("containers-share-claim", _NOTE, _PODS, "several containers use the same devices"),
    Rule("replicas-share-claim", _WARNING, _PODS, "replicas all name one claim, and so share its devices"),
    Rule("surge-needs-devices", _WARNING, _PODS, "a rolling update starts a pod before an old one gives its devices back"),
    Rule("group-priority", _WARNING, _PODS, "a pod and its PodGroup have different priorities"),
    Rule("group-minimum", _WARNING, _PODS, "a PodGroup needs more pods at once than the input makes"),
    Rule("extended-resource-and-claim", _WARNING, _PODS, "a pod asks for the same hardware twice: by name and by claim"),
    Rule("unknown-queue", _WARNING, _QUEUES, "a pod, a PodGroup or a queue names a queue that is not known"),
    Rule("queue-limit", _WARNING, _QUEUES, "a queue may have less than it deserves"),
    Rule("queue-children", _WARNING, _QUEUES, "queues deserve more together than the queue above them"),
    Rule("unknown-compute-class", _WARNING, _CLASSES, "a pod selects a ComputeClass that is not known"),
    Rule("compute-class-conflict", _ERROR, _CLASSES, "a pod selects a ComputeClass, and what the class decides"),
    Rule("unknown-node-pool", _WARNING, _CLASSES, "a priority of a ComputeClass names a pool that is not known"),
    Rule("unknown-machine", _WARNING, _CLASSES, "a priority of a ComputeClass names a machine that is not known"),
    Rule("compute-class-order", _WARNING, _CLASSES, "the priorities of a ComputeClass and the alternatives of a claim are in different orders"),
)  # fmt: skip

BY_NAME = {rule.name: rule for rule in RULES}
