"""ComputeDomain of resource.nvidia.com/v1beta1: nodes whose GPUs may use each other's memory over NVLink. A custom resource.

Also the names by which its controller, the driver `compute-domain.nvidia.com` and users find the objects of a domain.
"""

from __future__ import annotations

import msgspec

from allot.core.model.meta import Int32, Int64, ObjectMeta, PartialStruct

GROUP, VERSION, KIND, PLURAL = "resource.nvidia.com", "v1beta1", "ComputeDomain", "computedomains"
API_VERSION = f"{GROUP}/{VERSION}"
DRIVER = "compute-domain.nvidia.com"
# Where the daemons of all domains run, and the only namespace in which a claim may request one.
DRIVER_NAMESPACE = "dra-driver-nvidia-gpu"
# On everything created for a domain and on its nodes: the domain's uid.
DOMAIN_LABEL = f"{GROUP}/computeDomain"
# On nodes: which GPUs are joined by NVLink, as `<cluster UUID>.<clique ID>`.
CLIQUE_LABEL = "nvidia.com/gpu.clique"
# The maximum number of nodes of a clique in a domain.
CLIQUE_NODES_MAX = 18

CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
DAEMON_CLASS = "compute-domain-daemon.nvidia.com"
CHANNEL_CONFIG, DAEMON_CONFIG = "ComputeDomainChannelConfig", "ComputeDomainDaemonConfig"
SINGLE, ALL = "Single", "All"
READY, NOT_READY = "Ready", "NotReady"


class TemplateReference(PartialStruct, frozen=True, kw_only=True):
    """A ResourceClaimTemplate in the domain's namespace."""

    name: str = ""


class ChannelSpec(PartialStruct, frozen=True, kw_only=True):
    """The template of the channel claims of the domain's pods, and whether they get one channel or all."""

    resource_claim_template: TemplateReference = TemplateReference()
    allocation_mode: str = SINGLE


class ComputeDomainSpec(PartialStruct, frozen=True, kw_only=True):
    """num_nodes: how many nodes must be ready before the domain is; 0: any number."""

    num_nodes: Int64 = 0
    channel: ChannelSpec = ChannelSpec()


class ComputeDomainNode(PartialStruct, frozen=True, kw_only=True):
    """A node in the domain. index: its place in its clique; -1 without a clique, or if all places are taken."""

    name: str = ""
    ip_address: str = ""
    clique_id: str = msgspec.field(default="", name="cliqueID")
    index: Int32 = 0
    status: str = NOT_READY


class ComputeDomainStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of the domain."""

    status: str = ""
    nodes: tuple[ComputeDomainNode, ...] = ()


class ComputeDomain(PartialStruct, frozen=True, kw_only=True):
    """ComputeDomain."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ComputeDomainSpec = ComputeDomainSpec()
    status: ComputeDomainStatus = ComputeDomainStatus()

    def node(self, name: str) -> ComputeDomainNode | None:
        """The entry of a node in the status."""
        return next((each for each in self.status.nodes if each.name == name), None)


def label_removal(uid: str) -> list[dict[str, str]]:
    """The JSON patch that removes a node from a domain, if it is still in this one."""
    path = f"/metadata/labels/{DOMAIN_LABEL.replace('/', '~1')}"
    return [{"op": "test", "path": path, "value": uid}, {"op": "remove", "path": path}]
