"""DeviceClass: handwritten rules."""

from __future__ import annotations

from allot.core.features import FeatureGates
from allot.core.model.resource_v1 import CONFIG_MAX, DeviceClass, DeviceClassConfiguration, DeviceClassSpec
from allot.core.validation import formats
from allot.core.validation.configuration import check_configuration
from allot.core.validation.declarative_formats import extended_resource_name
from allot.core.validation.expressions import check_selectors, expression_rules
from allot.core.validation.fields import Findings, child, invalid
from allot.core.validation.formats import Messages
from allot.core.validation.lists import check_list
from allot.core.validation.object_meta import check_object_meta, check_object_meta_update


def _name_format(name: str) -> Messages:
    return formats.dns_subdomain(name, formats.BYTES)


def check_create(device_class: DeviceClass, gates: FeatureGates) -> Findings:
    """A new class."""
    found = check_object_meta(device_class.metadata, namespaced=False, name_format=_name_format)
    return found + _check_spec(device_class.spec, None, gates)


def check_update(new: DeviceClass, old: DeviceClass, gates: FeatureGates) -> Findings:
    """A changed class; selectors and config are checked again only if their list changed."""
    found = check_object_meta(new.metadata, namespaced=False, name_format=_name_format)
    found += check_object_meta_update(new.metadata, old.metadata)
    return found + _check_spec(new.spec, old.spec, gates)


def _check_spec(
    spec: DeviceClassSpec, old: DeviceClassSpec | None, gates: FeatureGates, path: str = "spec"
) -> Findings:
    stored = old is not None and old.selectors == spec.selectors
    found = check_selectors(spec.selectors, child(path, "selectors"), expression_rules(gates, stored=stored))
    config_stored = old is not None and old.config == spec.config

    def check_entry(entry: DeviceClassConfiguration, where: str) -> Findings:
        return check_configuration(entry.opaque, where, stored=config_stored)

    found += check_list(spec.config, child(path, "config"), check_entry, maximum=CONFIG_MAX, size_covered=True)
    name = spec.extended_resource_name
    where = child(path, "extendedResourceName")
    if name is not None and extended_resource_name(where, name, True):
        detail = "must be a valid extended resource name"
        found.append(invalid(where, name, detail, origin="format=k8s-extended-resource-name", covered=True))
    return found
