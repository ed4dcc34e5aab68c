"""The plugins that a server runs, in upstream's order.

Omitted: ExtendedResourceToleration and others that are off by default upstream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from allot.apiserver.admission.attributes import Authorize, Lookup, StatusWriter
from allot.apiserver.admission.certificates import Certificates
from allot.apiserver.admission.chain import AdmissionChain, MutatingPlugin, ValidatingPlugin
from allot.apiserver.admission.defaults import (
    DefaultIngressClass,
    DefaultStorageClass,
    DefaultTolerationSeconds,
    ProtectionFinalizers,
    TaintNodesByCondition,
)
from allot.apiserver.admission.limit_ranger import LimitRanger
from allot.apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from allot.apiserver.admission.node_restriction import NodeRestriction
from allot.apiserver.admission.priority import Priority
from allot.apiserver.admission.resource_quota import ResourceQuota
from allot.apiserver.admission.runtime_class import RuntimeClass
from allot.apiserver.admission.service_account import ServiceAccount
from allot.apiserver.admission.volume_resize import PersistentVolumeClaimResize
from allot.core.features import FeatureGates
from allot.process.clock import Clock
from allot.process.ids import Ids


def default_chain(
    *,
    lookup: Lookup,
    writer: StatusWriter,
    authorize: Authorize,
    clock: Clock,
    ids: Ids,
    gates: FeatureGates,
    recalculate_quota: bool = True,
    disabled: Collection[str] = (),
    last_mutating: Iterable[MutatingPlugin] = (),
    last_validating: Iterable[ValidatingPlugin] = (),
) -> AdmissionChain:
    """The chain. last_*: policies and webhooks, which see the results of the plugins before them; quota is charged last.

    disabled: plugins to omit, by kube-apiserver's names (`--disable-admission-plugins`).
    """
    limits = LimitRanger(lookup)
    accounts = ServiceAccount(lookup, clock, ids.suffix)
    priority = Priority(lookup, gates)
    runtime = RuntimeClass(lookup)
    mutating: list[MutatingPlugin] = [
        NamespaceLifecycle(lookup),
        limits,
        accounts,
        NodeRestriction(lookup, authorize),
        TaintNodesByCondition(),
        priority,
        DefaultTolerationSeconds(),
        DefaultStorageClass(lookup),
        ProtectionFinalizers(gates),
        runtime,
        DefaultIngressClass(lookup),
        *last_mutating,
    ]
    validating: list[ValidatingPlugin] = [
        limits,
        accounts,
        priority,
        PersistentVolumeClaimResize(lookup),
        runtime,
        Certificates(authorize),
        *last_validating,
        ResourceQuota(lookup, writer, clock.now, recalculate=recalculate_quota),
    ]
    return AdmissionChain(
        (plugin for plugin in mutating if type(plugin).__name__ not in disabled),
        (plugin for plugin in validating if type(plugin).__name__ not in disabled),
        lookup,
    )
