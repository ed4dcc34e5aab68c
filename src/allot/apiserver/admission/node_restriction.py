"""NodeRestriction: nodes may change only their own objects, and only what they need to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from allot.apiserver.admission.attributes import Admission, Authorize, Lookup, Object, Operation
from allot.apiserver.admission.objects import annotations_of, field, labels_of, metadata, sequence, text
from allot.apiserver.admission.service_account import MIRROR_POD, environment_names, secret_names
from allot.apiserver.errors import StatusError, not_found
from allot.apiserver.request import Attributes, User
from allot.apiserver.resources import Resource
from allot.core.access.certificate_requests import read_request
from allot.core.json_objects import mapping
from allot.core.validation.fields import quote

_USER_PREFIX = "system:node:"
_GROUP = "system:nodes"
_LEASE_NAMESPACE = "kube-node-lease"
_NODE_SIGNERS = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")

# Kubernetes' own labels that a node may set.
_NODE_LABELS = frozenset(
    (
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    )
)
_NODE_LABEL_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


def node_of(user: User) -> str | None:
    """The name of the node that the user is; empty for a node without a name, None for any other user."""
    if not user.name.startswith(_USER_PREFIX) or _GROUP not in user.groups:
        return None
    return user.name.removeprefix(_USER_PREFIX)


class NodeRestriction:
    """The plugin."""

    def __init__(self, lookup: Lookup, authorize: Authorize) -> None:
        self._lookup = lookup
        self._authorize = authorize
        self._checks: Mapping[tuple[str, str], Callable[[str, Admission], Awaitable[None]]] = {
            ("", "pods"): self._check_pod,
            ("", "nodes"): self._check_node,
            ("", "persistentvolumeclaims"): self._check_volume_claim,
            ("", "serviceaccounts"): self._check_token,
            ("coordination.k8s.io", "leases"): self._check_lease,
            ("storage.k8s.io", "csinodes"): self._check_csi_node,
            ("resource.k8s.io", "resourceslices"): self._check_slice,
            ("certificates.k8s.io", "certificatesigningrequests"): self._check_certificate,
            ("certificates.k8s.io", "podcertificaterequests"): self._check_pod_certificate,
        }

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:  # noqa: ARG002
        """Writes by nodes."""
        return operation is not Operation.CONNECT and (resource.group, resource.plural) in self._checks

    async def mutate(self, admission: Admission) -> None:
        """Refuse, or let pass."""
        node = node_of(admission.user)
        if node is None:
            return
        if not node:
            raise admission.forbidden(f'could not determine node from user "{admission.user.name}"')
        await self._checks[admission.key](node, admission)

    # --- pods ---

    async def _check_pod(self, node: str, admission: Admission) -> None:
        match admission.subresource:
            case "":
                await self._check_pod_itself(node, admission)
            case "status":
                _check_pod_status(node, admission)
            case "eviction":
                name = admission.name or text(metadata(admission.object).get("name"))
                if not name:
                    raise admission.forbidden("could not determine pod from request data")
                pod = await self._pod(admission.namespace, name)
                if field(pod, "spec", "nodeName") != node:
                    raise admission.forbidden(f"node {node} can only evict pods with spec.nodeName set to itself")
            case other:
                raise admission.forbidden(
                    f"unexpected pod subresource \"{other}\", only 'status' and 'eviction' are allowed"
                )

    async def _pod(self, namespace: str, name: str) -> Object:
        pod = await self._lookup.get("pods", "", namespace, name)
        if pod is None:
            raise not_found("", "pods", name)
        return pod

    async def _check_pod_itself(self, node: str, admission: Admission) -> None:
        if admission.operation is Operation.CREATE:
            await self._check_mirror_pod(node, admission)
        elif admission.operation is Operation.DELETE:
            pod = admission.old or await self._pod(admission.namespace, admission.name)
            if field(pod, "spec", "nodeName") != node:
                raise admission.forbidden(f'node "{node}" can only delete pods with spec.nodeName set to itself')
        else:
            raise admission.forbidden(
                f'unexpected operation "{admission.operation}", node "{node}" can only create and delete mirror pods'
            )

    async def _check_mirror_pod(self, node: str, admission: Admission) -> None:
        pod = mapping(admission.object)
        if MIRROR_POD not in annotations_of(pod):
            raise admission.forbidden(
                f'pod does not have "{MIRROR_POD}" annotation, node "{node}" can only create mirror pods'
            )
        if field(admission.object, "spec", "nodeName") != node:
            raise admission.forbidden(f'node "{node}" can only create pods with spec.nodeName set to itself')
        owners = [mapping(one) for one in sequence(metadata(pod).get("ownerReferences"))]
        if len(owners) > 1:
            raise admission.forbidden(f'node "{node}" can only create pods with a single owner reference set to itself')
        owner: Mapping[str, Any] = owners[0] if owners else {}
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            raise admission.forbidden(f'node "{node}" can only create pods with an owner reference set to itself')
        if owner.get("controller") is not True:
            raise admission.forbidden(
                f'node "{node}" can only create pods with a controller owner reference set to itself'
            )
        if owner.get("blockOwnerDeletion") is True:
            raise admission.forbidden(f'node "{node}" must not set blockOwnerDeletion on an owner reference')
        found = await self._lookup.get("nodes", "", "", node)
        if found is None:
            raise not_found("", "nodes", node)
        uid = metadata(found).get("uid")
        if owner.get("uid") != uid:
            raise admission.forbidden(f"node {node} UID mismatch: expected {owner.get('uid', '')} got {uid}")
        referenced = _referenced_kind(pod)
        if referenced:
            raise admission.forbidden(f'node "{node}" can not create pods that reference {referenced}')

    # --- other kinds ---

    async def _check_node(self, node: str, admission: Admission) -> None:
        name = admission.name or text(metadata(admission.object).get("name"))
        if name != node:
            raise admission.forbidden(f'node "{node}" is not allowed to modify node "{name}"')
        new, old = admission.object, admission.old
        if admission.operation is Operation.CREATE:
            refused = _refused_labels(labels_of(new), {})
            if refused:
                listed = ", ".join(refused)
                raise admission.forbidden(f'node "{node}" is not allowed to set the following labels: {listed}')
        elif admission.operation is Operation.UPDATE:
            if sequence(field(new, "spec", "taints")) != sequence(field(old, "spec", "taints")):
                raise admission.forbidden(f'node "{node}" is not allowed to modify taints')
            if sequence(metadata(new).get("ownerReferences")) != sequence(metadata(old).get("ownerReferences")):
                raise admission.forbidden(f'node "{node}" is not allowed to modify ownerReferences')
            refused = _refused_labels(labels_of(new), labels_of(old))
            if refused:
                raise admission.forbidden(f"is not allowed to modify labels: {', '.join(refused)}")

    async def _check_volume_claim(self, node: str, admission: Admission) -> None:
        if admission.subresource != "status":
            raise admission.forbidden("may only update PVC status")
        if admission.operation is not Operation.UPDATE:
            raise admission.forbidden(f'unexpected operation "{admission.operation}"')
        if _without_volume_status(admission.object) != _without_volume_status(admission.old):
            raise admission.forbidden(
                f'node "{node}" is not allowed to update fields other than status.quantity and status.conditions'
            )

    async def _check_token(self, node: str, admission: Admission) -> None:
        if admission.operation is not Operation.CREATE or admission.subresource != "token":
            return
        bound = mapping(field(admission.object, "spec", "boundObjectRef"))
        if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not bound.get("name"):
            raise admission.forbidden("node requested token not bound to a pod")
        if not bound.get("uid"):
            raise admission.forbidden("node requested token with a pod binding without a uid")
        pod = await self._pod(admission.namespace, text(bound["name"]))
        if bound["uid"] != metadata(pod).get("uid"):
            raise admission.forbidden(
                f"the UID in the bound object reference ({bound['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
        if field(pod, "spec", "nodeName") != node:
            raise admission.forbidden("node requested token bound to a pod scheduled on a different node")
        await self._check_audience(admission, pod)

    async def _check_audience(self, admission: Admission, pod: Object) -> None:
        """A token's audience must be one that the pod's volumes name, or that the node has permission to request."""
        audiences = sequence(field(admission.object, "spec", "audiences"))
        if len(audiences) > 1:
            raise admission.forbidden("node may only request 0 or 1 audiences")
        audience = text(audiences[0]) if audiences else ""
        for volume in sequence(field(pod, "spec", "volumes")):
            if audience in await self._audiences(pod, mapping(volume)):
                return
        asked = Attributes(
            user=admission.user,
            verb="request-serviceaccounts-token-audience",
            version="v1",
            resource=audience,
            namespace=admission.namespace,
            name=admission.name,
        )
        if not self._authorize(asked).allowed:
            why = f"is not authorized to request tokens for audience {quote(audience)}"
            raise admission.forbidden(f"{admission.user.name} {why}")

    async def _audiences(self, pod: Object, volume: Mapping[str, Any]) -> list[str]:
        """The audiences of a volume's tokens: those projected into it, or passed to its CSI driver."""
        projected = [
            text(mapping(source["serviceAccountToken"]).get("audience"))
            for source in map(mapping, sequence(field(volume, "projected", "sources")))
            if source.get("serviceAccountToken") is not None
        ]
        if projected:
            return projected
        driver = field(volume, "csi", "driver")
        claim = field(volume, "persistentVolumeClaim", "claimName")
        if volume.get("ephemeral") is not None:
            claim = f"{metadata(pod)['name']}-{volume.get('name')}"
        if claim:
            bound = await self._lookup.get("persistentvolumeclaims", "", metadata(pod)["namespace"], text(claim))
            name = text(field(bound, "spec", "volumeName"))
            persistent = await self._lookup.get("persistentvolumes", "", "", name) if name else None
            driver = field(persistent, "spec", "csi", "driver")
        if not driver:
            return []
        found = await self._lookup.get("csidrivers", "storage.k8s.io", "", text(driver))
        return [text(mapping(one).get("audience")) for one in sequence(field(found, "spec", "tokenRequests"))]

    async def _check_lease(self, node: str, admission: Admission) -> None:
        if admission.namespace != _LEASE_NAMESPACE:
            raise admission.forbidden(f'can only access leases in the "{_LEASE_NAMESPACE}" system namespace')
        if _target(admission) != node:
            raise admission.forbidden("can only access node lease with the same name as the requesting node")

    async def _check_csi_node(self, node: str, admission: Admission) -> None:
        if _target(admission) != node:
            raise admission.forbidden("can only access CSINode with the same name as the requesting node")

    async def _check_slice(self, node: str, admission: Admission) -> None:
        same = "ResourceSlice with the same NodeName as the requesting node"
        if admission.operation is Operation.CREATE and field(admission.object, "spec", "nodeName") != node:
            raise admission.forbidden(f"can only create {same}")
        if admission.operation is Operation.DELETE and field(admission.old, "spec", "nodeName") != node:
            raise admission.forbidden(f"can only delete {same}")

    async def _check_certificate(self, node: str, admission: Admission) -> None:
        if admission.operation is not Operation.CREATE:
            return
        if field(admission.object, "spec", "signerName") not in _NODE_SIGNERS:
            return
        subject = read_request(field(admission.object, "spec", "request"))
        if subject is None:
            raise admission.forbidden("unable to parse csr: PEM block type must be CERTIFICATE REQUEST")
        if subject.common_name != f"{_USER_PREFIX}{node}":
            raise admission.forbidden(f"can only create a node CSR with CN={_USER_PREFIX}{node}")

    # --- certificates of pods ---

    async def _check_pod_certificate(self, node: str, admission: Admission) -> None:
        """A node may request a certificate only for a pod that it runs, with that pod's identity, from a signer that the pod names.

        Where this server's view may be stale, the answer is not 403: the node may try again."""
        if admission.operation is not Operation.CREATE:
            raise admission.forbidden(f"unexpected operation {admission.operation}")
        if admission.subresource:
            raise admission.forbidden(f"unexpected subresource {admission.subresource}")
        asked = {name: text(each) for name, each in mapping(field(admission.object, "spec")).items()}
        name, uid, account = asked.get("podName", ""), asked.get("podUID", ""), asked.get("serviceAccountName", "")
        named = quote(f"{admission.namespace}/{name}")
        about = f"PodCertificateRequest for pod {named}"
        if (said := asked.get("nodeName", "")) != node:
            raise admission.forbidden(
                f"PodCertificateRequest.Spec.NodeName={quote(said)}, which is not the requesting node {quote(node)}"
            )
        found = _uid(await self._named("nodes", "", node, f"node {quote(node)}"))
        if (said := asked.get("nodeUID", "")) != found:
            raise _not_now(f"{about} names node UID {quote(said)}, inconsistent with the running node ({quote(found)})")
        pod = await self._named("pods", admission.namespace, name, f"pod {named}")
        if uid != _uid(pod):
            raise _not_now(f"{about} contains pod UID ({quote(uid)}) which differs from running pod {quote(_uid(pod))}")
        if field(pod, "spec", "nodeName") != node:
            raise admission.forbidden(
                f"pod {named} is not running on node {quote(node)} named in the PodCertificateRequest"
            )
        if MIRROR_POD in annotations_of(pod):
            raise admission.forbidden(f"pod {named} is a mirror pod")
        if account != (own := text(field(pod, "spec", "serviceAccountName"))):
            why = f"contains serviceAccountName ({quote(account)}) that differs from running pod ({quote(own)})"
            raise admission.forbidden(f"{about} {why}")
        what = f"service account {quote(f'{admission.namespace}/{account}')}"
        found = _uid(await self._named("serviceaccounts", admission.namespace, account, what))
        if (said := asked.get("serviceAccountUID", "")) != found:
            why = f"names service account UID {quote(said)}, which differs from the running service account"
            raise _not_now(f"{about} {why} ({quote(found)})")
        self._check_signer(admission, pod, asked.get("signerName", ""), account)

    async def _named(self, plural: str, namespace: str, name: str, what: str) -> Object:
        found = await self._lookup.get(plural, "", namespace, name)
        if found is None:
            kind = plural.removesuffix("s")
            raise _not_now(f'while retrieving {what} named in the PodCertificateRequest: {kind} "{name}" not found')
        return found

    def _check_signer(self, admission: Admission, pod: Object, signer: str, account: str) -> None:
        """The signer must be one that the pod's volumes name, or that the node has permission to use."""
        volumes = map(mapping, sequence(field(pod, "spec", "volumes")))
        sources = [mapping(one) for volume in volumes for one in sequence(field(volume, "projected", "sources"))]
        if any(field(one, "podCertificate", "signerName") == signer for one in sources):
            return
        asked = Attributes(
            user=admission.user,
            verb="request-serviceaccounts-podcertificate-signer",
            group=admission.resource.group,
            version=admission.version,
            # Names of resources have no slashes.
            resource=signer.replace("/", ":"),
            namespace=admission.namespace,
            name=account,
        )
        if not self._authorize(asked).allowed:
            named = quote(f"{admission.namespace}/{metadata(pod)['name']}")
            raise admission.forbidden(
                f"pod {named} does not mount a podCertificate projected volume for signer {quote(signer)}"
            )


def _uid(object_: Object) -> str:
    return text(metadata(object_).get("uid"))


def _not_now(message: str) -> StatusError:
    return StatusError(500, "", message)


def _target(admission: Admission) -> str:
    """The name of the object; on create, the path does not contain it."""
    if admission.operation is Operation.CREATE:
        return text(metadata(admission.object).get("name"))
    return admission.name


def _check_pod_status(node: str, admission: Admission) -> None:
    if admission.operation is not Operation.UPDATE:
        raise admission.forbidden(f'unexpected operation "{admission.operation}"')
    new, old = admission.object, admission.old
    if field(old, "spec", "nodeName") != node:
        raise admission.forbidden(f'node "{node}" can only update pod status for pods with spec.nodeName set to itself')
    if labels_of(new) != labels_of(old):
        raise admission.forbidden(f'node "{node}" cannot update labels through pod status')
    for name, what in (
        # Upstream's spelling.
        ("resourceClaimStatuses", "resource claim statues"),
        ("extendedResourceClaimStatus", "extended resource claim status"),
        ("nodeAllocatableResourceClaimStatuses", "node allocatable resource claim statuses"),
    ):
        if (field(new, "status", name) or None) != (field(old, "status", name) or None):
            raise admission.forbidden(f'node "{node}" cannot update {what}')


def _referenced_kind(pod: Mapping[str, Any]) -> str:
    """The kind of an API object that a pod refers to; empty if it refers to none."""
    spec = mapping(pod.get("spec"))
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if any(True for _ in secret_names(pod)):
        return "secrets"
    volumes = [mapping(one) for one in sequence(spec.get("volumes"))]
    sources = [mapping(one) for volume in volumes for one in sequence(mapping(volume.get("projected")).get("sources"))]
    if any(True for _ in environment_names(pod, "configMap")) or any("configMap" in one for one in volumes + sources):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    if any("serviceAccountToken" in source for source in sources):
        return "serviceaccounts"
    if any("clusterTrustBundle" in source for source in sources):
        return "clustertrustbundles"
    if any("persistentVolumeClaim" in volume or "ephemeral" in volume for volume in volumes):
        return "persistentvolumeclaims"
    return ""


def _refused_labels(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    changed = sorted(key for key in {**new, **old} if new.get(key) != old.get(key))
    return [key for key in changed if _is_refused_label(key)]


def _is_refused_label(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    if not slash:
        return False
    if domain == "node-restriction.kubernetes.io" or domain.endswith(".node-restriction.kubernetes.io"):
        return True
    if not (f".{domain}").endswith((".kubernetes.io", ".k8s.io")):
        return False
    return key not in _NODE_LABELS and not f".{domain}".endswith(tuple(f".{one}" for one in _NODE_LABEL_DOMAINS))


def _without_volume_status(claim: Mapping[str, Any] | None) -> dict[str, Any]:
    meta = {name: one for name, one in metadata(claim).items() if name not in ("resourceVersion", "managedFields")}
    ours = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")
    status = {name: one for name, one in mapping(field(claim, "status")).items() if name not in ours}
    return {**mapping(claim), "metadata": meta, "status": status}
