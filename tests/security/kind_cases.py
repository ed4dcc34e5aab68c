"""Objects that a server has to take or to refuse: kind by kind, with the field that is wrong.

A case is what is changed in a good object of its kind, and the status and the first cause of the answer: field and reason.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Object = dict[str, Any]

REQUIRED, INVALID, NOT_SUPPORTED, DUPLICATE, FORBIDDEN, TOO_LONG, TOO_MANY = (
    f"FieldValue{name}"
    for name in ("Required", "Invalid", "NotSupported", "Duplicate", "Forbidden", "TooLong", "TooMany")
)


class Case(NamedTuple):
    """A new object and what becomes of it."""

    kind: str
    what: str
    object: Object
    # Field and reason of the first cause; nothing where the object is taken.
    field: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.kind}-{self.what}".replace(" ", "-")


PATHS = {
    "IPAddress": "/apis/networking.k8s.io/v1/ipaddresses",
    "ServiceCIDR": "/apis/networking.k8s.io/v1/servicecidrs",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "Ingress": "/apis/networking.k8s.io/v1/namespaces/{}/ingresses",
    "IngressClass": "/apis/networking.k8s.io/v1/ingressclasses",
    "StorageVersionMigration": "/apis/storagemigration.k8s.io/v1/storageversionmigrations",
    "ClusterTrustBundle": "/apis/certificates.k8s.io/v1/clustertrustbundles",
    "CertificateSigningRequest": "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "Endpoints": "/api/v1/namespaces/{}/endpoints",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "Node": "/api/v1/nodes",
    "ControllerRevision": "/apis/apps/v1/namespaces/{}/controllerrevisions",
    "FlowSchema": "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "PriorityLevelConfiguration": "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    "MutatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}


# --- certificates ---


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@functools.cache
def certificate(name: str = "authority", *, ca: bool | None = True) -> str:
    """A certificate in PEM. ca: of an authority, of none, or without a word about it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(_name(name)).issuer_name(_name(name)).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now)
    builder = builder.not_valid_after(now + timedelta(days=1))
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


@functools.cache
def signing_request(name: str = "somebody", *, forged: bool = False) -> bytes:
    """A PKCS#10 request in PEM; a forged one is over a key that did not sign it."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(_name(name)).sign(key, hashes.SHA256())
    der = made.public_bytes(serialization.Encoding.DER)
    if forged:
        point = key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        other = ec.generate_private_key(ec.SECP256R1()).public_key()
        stolen = other.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        der = der.replace(point, stolen)
    return pem_block("CERTIFICATE REQUEST", der).encode()


def pem_block(type_: str, der: bytes, headers: str = "") -> str:
    """A block of PEM."""
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN {type_}-----\n{headers}{body}-----END {type_}-----\n"


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


# --- changes of good objects ---


def changed(object_: Object, path: str, value: Any) -> Object:
    """The object with another value at a dotted path, in which numbers are places of lists; None removes."""
    first, _, rest = path.partition(".")
    if first.isdigit():
        items = list(object_)
        items[int(first)] = changed(items[int(first)], rest, value) if rest else value
        return items  # type: ignore[return-value]
    inner = changed(object_.get(first, {}), rest, value) if rest else value
    kept = {name: member for name, member in object_.items() if name != first}
    return kept if inner is None else {**kept, first: inner}


def _cases(kind: str, good: Object, *rows: tuple[Any, ...]) -> Iterator[Case]:
    """Rows: what is wrong, a dotted path (or several, with their values), the new value, field and reason."""
    yield Case(kind, "good", good)
    for what, changes, *expected in rows:
        object_ = good
        for path, value in changes.items():
            object_ = changed(object_, path, value)
        yield Case(kind, what, object_, *expected)


def _named(**members: Any) -> Object:
    return {"metadata": {"name": "x"}, **members}


_PARENT = {"group": "", "resource": "services", "namespace": "default", "name": "web"}


def _networking() -> Iterator[Case]:
    address = {"metadata": {"name": "10.96.200.1"}, "spec": {"parentRef": _PARENT}}
    yield from _cases(
        "IPAddress",
        address,
        ("IPv6", {"metadata.name": "2001:db8::1"}),
        ("name of a host", {"metadata.name": "web"}, "metadata.name", INVALID),
        ("leading zeros", {"metadata.name": "010.96.0.1"}, "metadata.name", INVALID),
        ("mapped", {"metadata.name": "::ffff:10.96.0.1"}, "metadata.name", INVALID),
        ("not canonical", {"metadata.name": "2001:db8:0::1"}, "metadata.name", INVALID),
        ("no parent", {"spec.parentRef": None}, "spec.parentRef", REQUIRED),
        ("no resource", {"spec.parentRef.resource": None}, "spec.parentRef.resource", REQUIRED),
        ("no name", {"spec.parentRef.name": None}, "spec.parentRef.name", REQUIRED),
        ("slash", {"spec.parentRef.name": "a/b"}, "spec.parentRef.name", INVALID),
        ("group", {"spec.parentRef.group": "No_Group"}, "spec.parentRef.group", INVALID),
        ("namespace", {"spec.parentRef.namespace": ".."}, "spec.parentRef.namespace", INVALID),
    )
    network = _named(spec={"cidrs": ["10.200.0.0/24"]})
    yield from _cases(
        "ServiceCIDR",
        network,
        ("dual", {"spec.cidrs": ["10.201.0.0/24", "2001:db8::/64"]}),
        ("none", {"spec.cidrs": []}, "spec.cidrs", REQUIRED),
        ("three", {"spec.cidrs": ["10.0.0.0/8", "2001:db8::/64", "11.0.0.0/8"]}, "spec.cidrs", INVALID),
        ("host bits", {"spec.cidrs": ["10.200.0.1/24"]}, "spec.cidrs[0]", INVALID),
        ("mapped", {"spec.cidrs": ["::ffff:10.0.0.0/104"]}, "spec.cidrs[0]", INVALID),
        ("not canonical", {"spec.cidrs": ["2001:DB8::/64"]}, "spec.cidrs[0]", INVALID),
        ("one family", {"spec.cidrs": ["10.0.0.0/8", "11.0.0.0/8"]}, "spec.cidrs", INVALID),
        ("no network", {"spec.cidrs": ["10.0.0.0"]}, "spec.cidrs[0]", INVALID),
    )
    block = {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}
    rule = {"from": [{"ipBlock": block}], "ports": [{"port": 80, "endPort": 90}]}
    policy = _named(spec={"podSelector": {}, "ingress": [rule]})
    where = "spec.ingress[0]"
    yield from _cases(
        "NetworkPolicy",
        policy,
        ("no peer", {"spec.ingress.0.from.0": {}}, f"{where}.from[0]", REQUIRED),
        ("two peers", {"spec.ingress.0.from.0.podSelector": {}}, f"{where}.from[0]", FORBIDDEN),
        ("no network", {"spec.ingress.0.from.0.ipBlock.cidr": "x"}, f"{where}.from[0].ipBlock.cidr", INVALID),
        ("zeros", {"spec.ingress.0.from.0.ipBlock.cidr": "010.0.0.0/8"}, f"{where}.from[0].ipBlock.cidr", INVALID),
        ("outside", {"spec.ingress.0.from.0.ipBlock.except": ["11.0.0.0/16"]},
         f"{where}.from[0].ipBlock.except[0]", INVALID),
        ("as wide", {"spec.ingress.0.from.0.ipBlock.except": ["10.0.0.0/8"]},
         f"{where}.from[0].ipBlock.except[0]", INVALID),
        ("ports", {"spec.ingress.0.ports.0.endPort": 70}, f"{where}.ports[0].endPort", INVALID),
        ("port", {"spec.ingress.0.ports.0.port": 70000}, f"{where}.ports[0].port", INVALID),
        ("types", {"spec.policyTypes": ["Sideways"]}, "spec.policyTypes[0]", NOT_SUPPORTED),
        ("operator", {"spec.podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
         "spec.podSelector.matchExpressions[0].operator", INVALID),
    )  # fmt: skip
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    ingress = _named(spec={"rules": [{"host": "example.com", "http": {"paths": [path]}}]})
    one = "spec.rules[0].http.paths[0]"
    yield from _cases(
        "Ingress",
        ingress,
        ("nothing", {"spec.rules": None}, "spec", INVALID),
        ("address", {"spec.rules.0.host": "10.0.0.1"}, "spec.rules[0].host", INVALID),
        ("wildcard", {"spec.rules.0.host": "*.example.com"}),
        ("wildcards", {"spec.rules.0.host": "*.*.example.com"}, "spec.rules[0].host", INVALID),
        ("relative", {"spec.rules.0.http.paths.0.path": "a"}, f"{one}.path", INVALID),
        ("upwards", {"spec.rules.0.http.paths.0.path": "/a/../b"}, f"{one}.path", INVALID),
        ("type", {"spec.rules.0.http.paths.0.pathType": "Glob"}, f"{one}.pathType", NOT_SUPPORTED),
        ("no type", {"spec.rules.0.http.paths.0.pathType": None}, f"{one}.pathType", REQUIRED),
        ("no port", {"spec.rules.0.http.paths.0.backend.service.port": {}}, f"{one}.backend", REQUIRED),
        ("no backend", {"spec.rules.0.http.paths.0.backend": {}}, f"{one}.backend", INVALID),
        ("secret", {"spec.tls": [{"secretName": "A_B"}]}, "spec.tls[0].secretName", INVALID),
        ("class", {"spec.ingressClassName": "A_B"}, "spec.ingressClassName", INVALID),
    )
    class_ = _named(spec={"controller": "example.com/ingress"})
    parameters = {"apiGroup": "example.com", "kind": "Gate", "name": "g"}
    yield from _cases(
        "IngressClass",
        class_,
        ("no controller", {"spec.controller": None}, "spec.controller", REQUIRED),
        ("no domain", {"spec.controller": "ingress"}, "spec.controller", INVALID),
        ("long", {"spec.controller": "example.com/" + "a" * 250}, "spec.controller", TOO_LONG),
        ("parameters", {"spec.parameters": parameters}),
        ("scope", {"spec.parameters": {**parameters, "scope": "Galaxy"}}, "spec.parameters.scope", NOT_SUPPORTED),
        ("no namespace", {"spec.parameters": {**parameters, "scope": "Namespace"}},
         "spec.parameters.namespace", REQUIRED),
    )  # fmt: skip


def _endpoints() -> Iterator[Case]:
    endpoint = {"addresses": ["10.1.2.3"], "nodeName": "n1", "hostname": "h"}
    slice_ = _named(addressType="IPv4", endpoints=[endpoint], ports=[{"name": "http", "port": 80}])
    where = "endpoints[0].addresses[0]"
    six = {"addressType": "IPv6", "endpoints.0.addresses": ["2001:db8::1"]}

    def at(address: str) -> dict[str, Any]:
        return {"endpoints.0.addresses": [address]}

    def at6(address: str) -> dict[str, Any]:
        return {**six, "endpoints.0.addresses": [address]}

    def at_name(address: str) -> dict[str, Any]:
        return {"addressType": "FQDN", "endpoints.0.addresses": [address]}

    yield from _cases(
        "EndpointSlice",
        slice_,
        ("no type", {"addressType": None}, "addressType", REQUIRED),
        ("type", {"addressType": "MAC"}, "addressType", NOT_SUPPORTED),
        ("loopback", at("127.0.0.1"), where, INVALID),
        ("any loopback", at("127.8.9.1"), where, INVALID),
        ("link-local", at("169.254.169.254"), where, INVALID),
        ("unspecified", at("0.0.0.0"), where, INVALID),
        ("multicast", at("224.0.0.1"), where, INVALID),
        ("leading zeros", at("0177.0.0.1"), where, INVALID),
        ("mapped", at("::ffff:127.0.0.1"), where, INVALID),
        ("mapped global", at("::ffff:10.1.2.3"), where, INVALID),
        ("name", at("example.com"), where, INVALID),
        ("other family", at("2001:db8::1"), "endpoints[0].addresses", INVALID),
        ("none", {"endpoints.0.addresses": []}, "endpoints[0].addresses", REQUIRED),
        ("many", {"endpoints.0.addresses": [f"10.1.2.{n}" for n in range(101)]}, "endpoints[0].addresses", TOO_MANY),
        ("IPv6", six),
        ("IPv6 loopback", at6("::1"), where, INVALID),
        ("IPv6 link-local", at6("fe80::1"), where, INVALID),
        ("IPv6 mapped", at6("::ffff:127.0.0.1"), where, INVALID),
        ("IPv6 with zone", at6("fe80::1%eth0"), where, INVALID),
        ("IPv6 not canonical", at6("2001:DB8::1"), where, INVALID),
        ("FQDN", at_name("a.example.com")),
        ("FQDN of one part", at_name("localhost"), where, INVALID),
        ("FQDN wrong", at_name("A_B.example.com"), where, INVALID),
        ("node", {"endpoints.0.nodeName": "A_B"}, "endpoints[0].nodeName", INVALID),
        ("host", {"endpoints.0.hostname": "a.b"}, "endpoints[0].hostname", INVALID),
        ("port name", {"ports.0.name": "A_B"}, "ports[0].name", INVALID),
        ("protocol", {"ports.0.protocol": "ICMP"}, "ports[0].protocol", NOT_SUPPORTED),
        ("app protocol", {"ports.0.appProtocol": "a b"}, "ports[0].appProtocol", INVALID),
        ("same ports", {"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}, "ports[1].name", DUPLICATE),
        ("hints", {"endpoints.0.hints": {"forZones": [{"name": "a"}, {"name": "a"}]}},
         "endpoints[0].hints.forZones[1].name", DUPLICATE),
        ("zone", {"endpoints.0.hints": {"forZones": [{"name": "a b"}]}},
         "endpoints[0].hints.forZones[0].name", INVALID),
        ("nodes", {"endpoints.0.hints": {"forNodes": [{"name": f"n{n}"} for n in range(9)]}},
         "endpoints[0].hints.forNodes", TOO_MANY),
    )  # fmt: skip
    endpoints = _named(subsets=[{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}])
    address = "subsets[0].addresses[0].ip"
    yield from _cases(
        "Endpoints",
        endpoints,
        ("loopback", {"subsets.0.addresses.0.ip": "127.0.0.1"}, address, INVALID),
        ("mapped", {"subsets.0.addresses.0.ip": "::ffff:127.0.0.1"}, address, INVALID),
        ("zeros", {"subsets.0.addresses.0.ip": "010.1.2.3"}, address, INVALID),
        ("link-local", {"subsets.0.addresses.0.ip": "169.254.169.254"}, address, INVALID),
        ("not ready", {"subsets.0.notReadyAddresses": [{"ip": "::1"}]}, "subsets[0].notReadyAddresses[0].ip", INVALID),
        ("empty", {"subsets.0.addresses": []}, "subsets[0]", REQUIRED),
        ("no address", {"subsets.0.addresses.0.ip": ""}, address, INVALID),
        ("port", {"subsets.0.ports.0.port": 0}, "subsets[0].ports[0].port", INVALID),
        ("nameless", {"subsets.0.ports": [{"port": 1}, {"port": 2}]}, "subsets[0].ports[0].name", REQUIRED),
        ("node", {"subsets.0.addresses.0.nodeName": "A_B"}, "subsets[0].addresses[0].nodeName", INVALID),
    )
    service = _named(spec={"ports": [{"port": 80}]})
    balanced = {"spec.type": "LoadBalancer"}
    yield from _cases(
        "Service",
        service,
        ("external", {"spec.externalIPs": ["192.0.2.1"]}),
        ("external loopback", {"spec.externalIPs": ["127.0.0.1"]}, "spec.externalIPs[0]", INVALID),
        ("external mapped", {"spec.externalIPs": ["::ffff:10.0.0.1"]}, "spec.externalIPs[0]", INVALID),
        ("external zeros", {"spec.externalIPs": ["010.0.0.1"]}, "spec.externalIPs[0]", INVALID),
        ("cluster address", {"spec.clusterIP": "010.96.0.9"}, "spec.clusterIPs[0]", INVALID),
        ("ranges", {**balanced, "spec.loadBalancerSourceRanges": ["10.0.0.0/8"]}),
        ("range of a host", {**balanced, "spec.loadBalancerSourceRanges": ["10.0.0.1/8"]},
         "spec.LoadBalancerSourceRanges[0]", INVALID),
        ("ranges elsewhere", {"spec.loadBalancerSourceRanges": ["10.0.0.0/8"]},
         "spec.LoadBalancerSourceRanges", FORBIDDEN),
    )  # fmt: skip
    node = _named(spec={"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]})
    yield from _cases(
        "Node",
        node,
        ("host bits", {"spec.podCIDR": "10.1.0.1/24", "spec.podCIDRs": ["10.1.0.1/24"]}, "spec.podCIDRs[0]", INVALID),
        ("zeros", {"spec.podCIDR": "10.01.0.0/24", "spec.podCIDRs": ["10.01.0.0/24"]}, "spec.podCIDRs[0]", INVALID),
        ("one family", {"spec.podCIDRs": ["10.1.0.0/24", "10.2.0.0/24"]}, "spec.podCIDRs", INVALID),
        ("both families", {"spec.podCIDRs": ["10.1.0.0/24", "2001:db8::/64"]}),
    )


def _certificates() -> Iterator[Case]:
    bundle = _named(spec={"trustBundle": certificate()})
    path = "spec.trustBundle"
    der = x509.load_pem_x509_certificate(certificate().encode()).public_bytes(serialization.Encoding.DER)

    def holding(pem: str) -> dict[str, Any]:
        return {path: pem}

    signer = {"metadata.name": "example.com:signer:x", "spec.signerName": "example.com/signer"}
    yield from _cases(
        "ClusterTrustBundle",
        bundle,
        ("two", holding(certificate("a") + "said between\n" + certificate("b"))),
        ("empty", holding(""), path, INVALID),
        ("text", holding("hello"), path, INVALID),
        ("twice", holding(certificate() * 2), path, INVALID),
        ("a key", holding(pem_block("PRIVATE KEY", b"secret")), path, INVALID),
        ("headers", holding(pem_block("CERTIFICATE", der, "Who: me\n\n")), path, INVALID),
        ("no certificate", holding(pem_block("CERTIFICATE", b"nothing")), path, INVALID),
        ("no authority", holding(certificate("leaf", ca=False)), path, INVALID),
        ("says nothing", holding(certificate("silent", ca=None)), path, INVALID),
        ("too long", holding(certificate() + " " * 1024 * 1024), path, TOO_LONG),
        ("of a signer", signer),
        ("name without signer", {**signer, "spec.signerName": None}, "metadata.name", INVALID),
        ("name of another", {**signer, "metadata.name": "example.org:signer:x"}, "metadata.name", INVALID),
        ("name of nobody", {**signer, "metadata.name": "x"}, "metadata.name", INVALID),
        ("signer", {"metadata.name": "example:x", "spec.signerName": "example"}, "spec.signerName", INVALID),
        ("signer of one part", {"metadata.name": "example:s:x", "spec.signerName": "example/s"},
         "spec.signerName", INVALID),
    )  # fmt: skip
    request = _named(
        spec={
            "request": _encoded(signing_request()),
            "signerName": "example.com/signer",
            "usages": ["client auth", "digital signature"],
        }
    )
    path = "spec.request"

    def asking(pem: bytes) -> dict[str, Any]:
        return {path: _encoded(pem)}

    yield from _cases(
        "CertificateSigningRequest",
        request,
        ("forged", asking(signing_request(forged=True)), path, INVALID),
        ("text", asking(b"hello"), path, INVALID),
        ("certificate", asking(certificate().encode()), path, INVALID),
        ("damaged", asking(pem_block("CERTIFICATE REQUEST", b"nothing").encode()), path, INVALID),
        ("nothing", {path: ""}, path, INVALID),
        ("no usages", {"spec.usages": []}, "spec.usages", REQUIRED),
        ("usage", {"spec.usages": ["world domination"]}, "spec.usages[0]", NOT_SUPPORTED),
        ("usage twice", {"spec.usages": ["any", "any"]}, "spec.usages[1]", DUPLICATE),
        ("no signer", {"spec.signerName": None}, "spec.signerName", REQUIRED),
        ("signer", {"spec.signerName": "example.com/a/b"}, "spec.signerName", INVALID),
        ("domain", {"spec.signerName": "example/b"}, "spec.signerName", INVALID),
        ("legacy", {"spec.signerName": "kubernetes.io/legacy-unknown"}, "spec.signerName", INVALID),
        ("short", {"spec.expirationSeconds": 599}, "spec.expirationSeconds", INVALID),
        ("long enough", {"spec.expirationSeconds": 600}),
    )


def _others() -> Iterator[Case]:
    migration = _named(spec={"resource": {"group": "apps", "resource": "deployments"}})
    yield from _cases(
        "StorageVersionMigration",
        migration,
        ("core", {"spec.resource": {"resource": "pods"}}),
        ("no resource", {"spec.resource.resource": None}, "spec.resource.resource", REQUIRED),
        ("resource", {"spec.resource.resource": "Pods!"}, "spec.resource.resource", INVALID),
        ("group", {"spec.resource.group": "Apps!"}, "spec.resource.group", INVALID),
    )
    revision = _named(data={"spec": {}}, revision=1)
    yield from _cases(
        "ControllerRevision",
        revision,
        ("negative", {"revision": -1}, "revision", INVALID),
        ("no data", {"data": None}, "data", REQUIRED),
        ("list", {"data": [1]}, "data", REQUIRED),
        ("text", {"data": "x"}, "data", REQUIRED),
    )
    user = {"kind": "User", "user": {"name": "jane"}}
    resources = {"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    rule = {"subjects": [user], "resourceRules": [resources]}
    schema = _named(spec={"priorityLevelConfiguration": {"name": "global-default"}, "rules": [rule]})
    one, other = "spec.rules.0.resourceRules.0", "spec.rules.0.nonResourceRules"
    where, subject = "spec.rules[0].resourceRules[0]", "spec.rules[0].subjects[0]"
    yield from _cases(
        "FlowSchema",
        schema,
        ("precedence", {"spec.matchingPrecedence": -1}, "spec.matchingPrecedence", INVALID),
        ("precedence too great", {"spec.matchingPrecedence": 10001}, "spec.matchingPrecedence", INVALID),
        ("first", {"spec.matchingPrecedence": 1}, "spec.matchingPrecedence", INVALID),
        ("exempt", {"metadata.name": "exempt", "spec.matchingPrecedence": 1}, "spec", INVALID),
        ("no level", {"spec.priorityLevelConfiguration.name": ""}, "spec.priorityLevelConfiguration.name", REQUIRED),
        ("level", {"spec.priorityLevelConfiguration.name": "A_B"}, "spec.priorityLevelConfiguration.name", INVALID),
        ("distinguisher", {"spec.distinguisherMethod": {"type": "ByMood"}},
         "spec.distinguisherMethod.type", NOT_SUPPORTED),
        ("no subjects", {"spec.rules.0.subjects": []}, "spec.rules[0].subjects", REQUIRED),
        ("no rules", {"spec.rules.0.resourceRules": []}, "spec.rules[0]", REQUIRED),
        ("subject", {"spec.rules.0.subjects.0.kind": "Robot"}, f"{subject}.kind", NOT_SUPPORTED),
        ("other subject", {"spec.rules.0.subjects.0.kind": "Group"}, f"{subject}.group", REQUIRED),
        ("account", {"spec.rules.0.subjects.0": {"kind": "ServiceAccount", "serviceAccount": {"name": "a"}}},
         f"{subject}.serviceAccount.namespace", REQUIRED),
        ("verbs", {f"{one}.verbs": ["steal"]}, f"{where}.verbs", NOT_SUPPORTED),
        ("every verb and one", {f"{one}.verbs": ["*", "get"]}, f"{where}.verbs", INVALID),
        ("no groups", {f"{one}.apiGroups": []}, f"{where}.apiGroups", REQUIRED),
        ("no namespaces", {f"{one}.namespaces": []}, f"{where}.namespaces", REQUIRED),
        ("namespace", {f"{one}.namespaces": ["A_B"]}, f"{where}.namespaces[0]", INVALID),
        ("urls", {other: [{"verbs": ["*"], "nonResourceURLs": ["healthz"]}]},
         "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]", INVALID),
        ("stars", {other: [{"verbs": ["*"], "nonResourceURLs": ["/a*/b"]}]},
         "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]", INVALID),
        ("name", {"metadata.name": "A_B"}, "metadata.name", INVALID),
    )  # fmt: skip
    queuing = {"queues": 64, "handSize": 6, "queueLengthLimit": 50}
    limited = {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Queue", "queuing": queuing}}
    level = _named(spec={"type": "Limited", "limited": limited})
    response = "spec.limited.limitResponse"
    yield from _cases(
        "PriorityLevelConfiguration",
        level,
        ("exempt", {"spec": {"type": "Exempt"}}, "spec.type", INVALID),
        ("no limits", {"spec.limited": None}, "spec.limited", REQUIRED),
        ("shares", {"spec.limited.nominalConcurrencyShares": -1}, "spec.limited.nominalConcurrencyShares", INVALID),
        ("lends", {"spec.limited.lendablePercent": 101}, "spec.limited.lendablePercent", INVALID),
        ("borrows", {"spec.limited.borrowingLimitPercent": -1}, "spec.limited.borrowingLimitPercent", INVALID),
        ("no response", {f"{response}.type": None}, f"{response}.queuing", FORBIDDEN),
        ("no type", {"spec.type": None}, "spec.limited", FORBIDDEN),
        ("type", {"spec.type": "Free"}, "spec.type", NOT_SUPPORTED),
        ("both", {"spec.exempt": {}}, "spec.exempt", FORBIDDEN),
        ("empty response", {response: {}}, f"{response}.type", REQUIRED),
        ("response", {f"{response}.type": "Shrug"}, f"{response}.type", NOT_SUPPORTED),
        ("reject and queue", {f"{response}.type": "Reject"}, f"{response}.queuing", FORBIDDEN),
        ("no queues", {f"{response}.queuing": None}, f"{response}.queuing", REQUIRED),
        ("hand", {f"{response}.queuing.handSize": 65}, f"{response}.queuing.handSize", INVALID),
        ("entropy", {f"{response}.queuing.handSize": 11}, f"{response}.queuing.handSize", INVALID),
        ("queues", {f"{response}.queuing.queues": 10_000_001}, f"{response}.queuing.queues", INVALID),
        ("fixed", {"metadata.name": "catch-all"}, "spec", INVALID),
    )


def _policies() -> Iterator[Case]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    constraints = {"resourceRules": [rule]}
    apply = {"expression": "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": apply}
    spec = {"matchConstraints": constraints, "mutations": [mutation], "reinvocationPolicy": "Never"}
    policy = _named(spec=spec)
    expression = "spec.mutations[0].applyConfiguration.expression"

    def patching(source: str) -> dict[str, Any]:
        return {"spec.mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": source}}]}

    def applying(source: str) -> dict[str, Any]:
        return {"spec.mutations.0.applyConfiguration.expression": source}

    condition, variable = {"name": "a", "expression": "true"}, {"name": "a", "expression": "1"}
    shared: tuple[tuple[Any, ...], ...] = (
        ("failure policy", {"spec.failurePolicy": "Shrug"}, "spec.failurePolicy", NOT_SUPPORTED),
        ("no constraints", {"spec.matchConstraints": None}, "spec.matchConstraints", REQUIRED),
        ("no rules", {"spec.matchConstraints.resourceRules": []}, "spec.matchConstraints.resourceRules", REQUIRED),
        ("operation", {"spec.matchConstraints.resourceRules.0.operations": ["STEAL"]},
         "spec.matchConstraints.resourceRules[0].operations[0]", NOT_SUPPORTED),
        ("versions", {"spec.matchConstraints.resourceRules.0.apiVersions": ["*", "v1"]},
         "spec.matchConstraints.resourceRules[0].apiVersions", INVALID),
        ("resources", {"spec.matchConstraints.resourceRules.0.resources": ["*", "pods"]},
         "spec.matchConstraints.resourceRules[0].resources", INVALID),
        ("param kind", {"spec.paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}),
        ("no param version", {"spec.paramKind": {"kind": "ConfigMap"}}, "spec.paramKind.apiVersion", REQUIRED),
        ("param version", {"spec.paramKind": {"apiVersion": "a/b/c", "kind": "C"}}, "spec.paramKind.apiVersion", INVALID),
        ("condition", {"spec.matchConditions": [condition]}),
        ("condition that is no condition", {"spec.matchConditions": [{**condition, "expression": "1"}]},
         "spec.matchConditions[0].expression", INVALID),
        ("condition without end", {"spec.matchConditions": [{**condition, "expression": "(true"}]},
         "spec.matchConditions[0].expression", INVALID),
        ("nameless condition", {"spec.matchConditions": [{"expression": "true"}]},
         "spec.matchConditions[0].name", REQUIRED),
        ("same conditions", {"spec.matchConditions": [condition] * 2}, "spec.matchConditions[1].name", DUPLICATE),
        ("variable", {"spec.variables": [variable]}),
        ("variable named in", {"spec.variables": [{**variable, "name": "in"}]}, "spec.variables[0].name", INVALID),
        ("variable of nothing", {"spec.variables": [{**variable, "expression": "nothing"}]},
         "spec.variables[0].expression", INVALID),
    )  # fmt: skip
    yield from _cases(
        "MutatingAdmissionPolicy",
        policy,
        *shared,
        ("delete", {"spec.matchConstraints.resourceRules.0.operations": ["DELETE"]},
         "spec.matchConstraints.resourceRules.operations", NOT_SUPPORTED),
        ("no mutations", {"spec.mutations": []}, "spec.mutations", REQUIRED),
        ("no reinvocation", {"spec.reinvocationPolicy": None}, "spec.reinvocationPolicy", REQUIRED),
        ("reinvocation", {"spec.reinvocationPolicy": "Always"}, "spec.reinvocationPolicy", NOT_SUPPORTED),
        ("patch type", {"spec.mutations.0.patchType": "Merge"}, "spec.mutations[0].patchType", NOT_SUPPORTED),
        ("no patch type", {"spec.mutations.0.patchType": None}, "spec.mutations[0].patchType", REQUIRED),
        ("other patch", {"spec.mutations.0.patchType": "JSONPatch"}, "spec.mutations[0].jsonPatch", REQUIRED),
        ("both", {"spec.mutations.0.jsonPatch": {"expression": "[]"}}, "spec.mutations[0].jsonPatch", INVALID),
        ("empty", applying(" "), expression, REQUIRED),
        ("no object", applying("{'a': 1}"), expression, INVALID),
        ("broken", applying("Object{"), expression, INVALID),
        ("unknown variable", applying("Object{spec: nothing}"), expression, INVALID),
        ("unknown type", applying("Subject{}"), expression, INVALID),
        ("params", applying("Object{spec: params.spec}"), expression, INVALID),
        ("patch", patching("[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('b/c'), value: object.x}]")),
        ("patch with a number", patching("[JSONPatch{op: 1}]"), "spec.mutations[0].jsonPatch.expression", INVALID),
        ("no patch", patching("[1]"), "spec.mutations[0].jsonPatch.expression", INVALID),
    )  # fmt: skip
    validation = {"expression": "object.metadata.name != 'x'"}
    first = "spec.validations[0]"
    yield from _cases(
        "ValidatingAdmissionPolicy",
        _named(spec={"matchConstraints": constraints, "validations": [validation]}),
        *shared,
        ("no validations", {"spec.validations": []}, "spec.validations", REQUIRED),
        ("no expression", {"spec.validations.0.expression": ""}, f"{first}.expression", REQUIRED),
        ("no condition", {"spec.validations.0.expression": "1"}, f"{first}.expression", INVALID),
        ("message", {"spec.validations.0.message": "a\nb"}, f"{first}.message", INVALID),
        ("message expression", {"spec.validations.0.messageExpression": "1"}, f"{first}.messageExpression", INVALID),
        ("reason", {"spec.validations.0.reason": "Because"}, f"{first}.reason", NOT_SUPPORTED),
        ("annotation", {"spec.auditAnnotations": [{"key": "a", "valueExpression": "'a'"}]}),
        ("annotation of a number", {"spec.auditAnnotations": [{"key": "a", "valueExpression": "1"}]},
         "spec.auditAnnotations[0].valueExpression", INVALID),
        ("annotation key", {"spec.auditAnnotations": [{"key": "a b", "valueExpression": "'a'"}]},
         "spec.auditAnnotations[0].key", INVALID),
    )  # fmt: skip
    reference = {"name": "p", "parameterNotFoundAction": "Deny"}
    bindings: tuple[tuple[Any, ...], ...] = (
        ("no policy", {"spec.policyName": None}, "spec.policyName", REQUIRED),
        ("policy", {"spec.policyName": "A_B"}, "spec.policyName", INVALID),
        ("params", {"spec.paramRef": reference}),
        ("no action", {"spec.paramRef": {"name": "p"}}, "spec.paramRef.parameterNotFoundAction", REQUIRED),
        ("action", {"spec.paramRef": {**reference, "parameterNotFoundAction": "Shrug"}},
         "spec.paramRef.parameterNotFoundAction", NOT_SUPPORTED),
        ("no params", {"spec.paramRef": {"parameterNotFoundAction": "Deny"}}, "spec.paramRef", REQUIRED),
        ("both", {"spec.paramRef": {**reference, "selector": {}}}, "spec.paramRef.name", FORBIDDEN),
        ("match policy", {"spec.matchResources": {"matchPolicy": "Roughly"}},
         "spec.matchResources.matchPolicy", NOT_SUPPORTED),
    )  # fmt: skip
    yield from _cases("MutatingAdmissionPolicyBinding", _named(spec={"policyName": "p"}), *bindings)
    yield from _cases(
        "ValidatingAdmissionPolicyBinding",
        _named(spec={"policyName": "p", "validationActions": ["Deny"]}),
        *bindings,
        ("no actions", {"spec.validationActions": []}, "spec.validationActions", REQUIRED),
        ("deny and warn", {"spec.validationActions": ["Deny", "Warn"]}, "spec.validationActions", INVALID),
        ("unknown", {"spec.validationActions": ["Pray"]}, "spec.validationActions[0]", NOT_SUPPORTED),
    )
    webhook = {
        "name": "hook.example.com",
        "clientConfig": {"service": {"namespace": "default", "name": "hook"}},
        "rules": [{**rule, "resources": ["nothings"], "apiGroups": ["nowhere.example.com"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    client = "webhooks[0].clientConfig"
    yield from _cases(
        "ValidatingWebhookConfiguration",
        _named(webhooks=[webhook]),
        ("name", {"webhooks.0.name": "hook"}, "webhooks[0].name", INVALID),
        ("side effects", {"webhooks.0.sideEffects": "Some"}, "webhooks[0].sideEffects", NOT_SUPPORTED),
        ("no side effects", {"webhooks.0.sideEffects": None}, "webhooks[0].sideEffects", REQUIRED),
        ("versions", {"webhooks.0.admissionReviewVersions": ["v7"]}, "webhooks[0].admissionReviewVersions", INVALID),
        ("time", {"webhooks.0.timeoutSeconds": 31}, "webhooks[0].timeoutSeconds", INVALID),
        ("no client", {"webhooks.0.clientConfig": {}}, client, REQUIRED),
        ("plain", {"webhooks.0.clientConfig": {"url": "http://example.com"}}, f"{client}.url", INVALID),
        ("user", {"webhooks.0.clientConfig": {"url": "https://me@example.com"}}, f"{client}.url", INVALID),
        ("query", {"webhooks.0.clientConfig": {"url": "https://example.com/?a"}}, f"{client}.url", INVALID),
        ("path", {"webhooks.0.clientConfig.service.path": "/a//b"}, f"{client}.service.path", INVALID),
        ("port", {"webhooks.0.clientConfig.service.port": 70000}, f"{client}.service.port", INVALID),
        ("operation", {"webhooks.0.rules.0.operations": ["*", "CREATE"]}, "webhooks[0].rules[0].operations", INVALID),
        ("condition", {"webhooks.0.matchConditions": [{"name": "a", "expression": "1"}]},
         "webhooks[0].matchConditions[0].expression", INVALID),
        ("twice", {"webhooks": [webhook] * 2}, "webhooks[1].name", DUPLICATE),
    )  # fmt: skip


class Change(NamedTuple):
    """A merge patch to a stored object, or to a part of it, and what becomes of it."""

    kind: str
    what: str
    object: Object
    patch: Object
    subresource: str = ""
    # Field and reason of the first cause; nothing where the change is taken.
    field: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.kind}-{self.what}".replace(" ", "-")


def _changes() -> Iterator[Change]:
    good = {case.kind: case.object for case in CASES if case.what == "good"}

    def change(kind: str, what: str, patch: Object, *more: str, **members: Any) -> Change:
        return Change(kind, what, {**good[kind], **members}, patch, *more)

    yield change("IPAddress", "label", {"metadata": {"labels": {"a": "b"}}})
    yield change("IPAddress", "parent", {"spec": {"parentRef": {"name": "other"}}}, "", "spec.parentRef", INVALID)
    yield change("ServiceCIDR", "second", {"spec": {"cidrs": ["10.200.0.0/24", "2001:db8::/64"]}})
    yield change("ServiceCIDR", "other", {"spec": {"cidrs": ["10.201.0.0/24"]}}, "", "spec.cidrs[0]", INVALID)
    yield change("ServiceCIDR", "none", {"spec": {"cidrs": []}}, "", "spec.cidrs", INVALID)
    yield change("ControllerRevision", "data", {"data": {"spec": {"a": 1}}}, "", "data", INVALID)
    yield change("ControllerRevision", "revision", {"revision": 2})
    yield change("ControllerRevision", "negative", {"revision": -2}, "", "revision", INVALID)
    yield change("EndpointSlice", "type", {"addressType": "FQDN", "endpoints": []}, "", "addressType", INVALID)
    loopback = [{"addresses": ["127.0.0.1"]}]
    yield change("EndpointSlice", "loopback", {"endpoints": loopback}, "", "endpoints[0].addresses[0]", INVALID)
    loopback = [{"addresses": [{"ip": "127.0.0.1"}]}]
    yield change("Endpoints", "loopback", {"subsets": loopback}, "", "subsets[0].addresses[0].ip", INVALID)
    yield change(
        "ClusterTrustBundle", "signer", {"spec": {"signerName": "example.com/s"}}, "", "metadata.name", INVALID
    )
    yield change("ClusterTrustBundle", "text", {"spec": {"trustBundle": "hello"}}, "", "spec.trustBundle", INVALID)
    yield change("ClusterTrustBundle", "renewed", {"spec": {"trustBundle": certificate("renewed")}})
    yield change(
        "IngressClass", "controller", {"spec": {"controller": "example.com/b"}}, "", "spec.controller", INVALID
    )
    yield change("Node", "network", {"spec": {"podCIDRs": ["10.9.0.0/24"], "podCIDR": "10.9.0.0/24"}},
                 "", "spec.podCIDRs", FORBIDDEN)  # fmt: skip
    yield change("FlowSchema", "precedence", {"spec": {"matchingPrecedence": 10001}},
                 "", "spec.matchingPrecedence", INVALID)  # fmt: skip
    twice = [{"type": "Dangling", "status": "True"}, {"status": "True"}]
    yield change("FlowSchema", "conditions", {"status": {"conditions": twice}},
                 "status", "status.conditions[1].type", REQUIRED)  # fmt: skip
    broken = {"spec": {"matchConditions": [{"name": "a", "expression": "(true"}]}}
    yield change("MutatingAdmissionPolicy", "condition", broken, "", "spec.matchConditions[0].expression", INVALID)
    yield change("ValidatingAdmissionPolicy", "condition", broken, "", "spec.matchConditions[0].expression", INVALID)
    yield from _status_changes(change)


def _status_changes(change: Callable[..., Change]) -> Iterator[Change]:
    kind, path = "StorageVersionMigration", "status.conditions"
    done = {"status": "True", "reason": "Done", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    yield change(kind, "spec", {"spec": {"resource": {"resource": "pods"}}}, "", "spec", INVALID)
    yield change(kind, "done", {"status": {"conditions": [{"type": "Succeeded", **done}]}}, "status")
    both = [{"type": "Succeeded", **done}, {"type": "Failed", **done}]
    yield change(kind, "done and failed", {"status": {"conditions": both}}, "status", path, INVALID)
    nameless = [{**done, "type": "Running", "reason": ""}]
    yield change(kind, "no reason", {"status": {"conditions": nameless}}, "status", f"{path}[0].reason", REQUIRED)
    version = "status.resourceVersion"
    yield change(kind, "version", {"status": {"resourceVersion": "abc"}}, "status", version, INVALID)
    kind = "CertificateSigningRequest"
    approved, denied = ({"type": type_, "status": "True", "reason": "Said"} for type_ in ("Approved", "Denied"))
    yield change(kind, "approved", {"status": {"conditions": [approved]}}, "approval")
    yield change(kind, "approved and denied", {"status": {"conditions": [approved, denied]}}, "approval", path, INVALID)
    unsure = {"status": {"conditions": [{**approved, "status": "Unknown"}]}}
    yield change(kind, "approved perhaps", unsure, "approval", f"{path}[0].status", NOT_SUPPORTED)
    twice = {"status": {"conditions": [approved, approved]}}
    yield change(kind, "approved twice", twice, "approval", f"{path}[1].type", DUPLICATE)
    yield change(kind, "approved by a signer", {"status": {"conditions": [approved]}}, "status", path, FORBIDDEN)
    signed = {"status": {"certificate": _encoded(certificate().encode())}}
    yield change(kind, "signed", signed, "status")
    nothing = {"status": {"certificate": _encoded(b"hello")}}
    yield change(kind, "signed with nothing", nothing, "status", "status.certificate", INVALID)
    key = {"status": {"certificate": _encoded(pem_block("PRIVATE KEY", b"secret").encode())}}
    yield change(kind, "signed with a key", key, "status", "status.certificate", INVALID)
    balanced = {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
    where = "status.loadBalancer.ingress"

    def ingress(**members: str) -> Object:
        return {"status": {"loadBalancer": {"ingress": [members]}}}

    yield change("Service", "ingress", ingress(ip="192.0.2.1"), "status", **balanced)
    yield change("Service", "no balancer", ingress(ip="192.0.2.1"), "status", where, FORBIDDEN)
    yield change("Service", "mapped", ingress(ip="::ffff:192.0.2.1"), "status", f"{where}[0].ip", INVALID, **balanced)
    named = ingress(hostname="10.0.0.1")
    yield change("Service", "no name", named, "status", f"{where}[0].hostname", INVALID, **balanced)
    yield change("Ingress", "address", ingress(ip="10.0.0.01"), "status", f"{where}[0].ip", INVALID)
    yield from _pod_changes()


def _pod_changes() -> Iterator[Change]:
    pod = _named(spec={"containers": [{"name": "c", "image": "i"}]})

    def at(what: str, status: Object, *more: str) -> Change:
        return Change("Pod", what, pod, {"status": status}, "status", *more)

    yield at("address", {"podIP": "10.1.2.3"})
    yield at("addresses", {"podIPs": [{"ip": "10.1.2.3"}, {"ip": "2001:db8::1"}]})
    yield at("loopback", {"podIP": "127.0.0.1"})
    yield at("mapped", {"podIP": "::ffff:127.0.0.1"}, "status.podIPs[0]", INVALID)
    yield at("mapped second", {"podIPs": [{"ip": "10.1.2.3"}, {"ip": "::ffff:7f00:1"}]}, "status.podIPs[1]", INVALID)
    yield at("leading zeros", {"podIP": "0177.0.0.1"}, "status.podIPs[0]", INVALID)
    yield at("name", {"podIP": "localhost"}, "status.podIPs[0]", INVALID)
    yield at("port", {"podIP": "10.1.2.3:6443"}, "status.podIPs[0]", INVALID)
    yield at("path", {"podIP": "10.1.2.3/api"}, "status.podIPs[0]", INVALID)
    yield at("zone", {"podIP": "fe80::1%eth0"}, "status.podIPs[0]", INVALID)
    yield at("one family", {"podIPs": [{"ip": "10.1.2.3"}, {"ip": "10.1.2.4"}]}, "status.podIPs", INVALID)
    three = [{"ip": "10.1.2.3"}, {"ip": "2001:db8::1"}, {"ip": "2001:db8::2"}]
    yield at("three", {"podIPs": three}, "status.podIPs", INVALID)
    yield at("host", {"hostIP": "10.1.2.3", "hostIPs": [{"ip": "10.1.2.3"}]})
    yield at("another host", {"hostIP": "10.1.2.3", "hostIPs": [{"ip": "10.1.2.4"}]}, "status.hostIPs[0].ip", INVALID)
    mapped = "::ffff:10.0.0.1"
    yield at("mapped host", {"hostIP": mapped, "hostIPs": [{"ip": mapped}]}, "status.hostIPs[0]", INVALID)


CASES = (*_networking(), *_endpoints(), *_certificates(), *_others(), *_policies())
CHANGES = tuple(_changes())
