"""Parts of objects that scenarios are made of."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

RESOURCE = "resource.k8s.io/v1"
END = "that is all"
# What containers do unless told otherwise: show their variables, and stay.
SHOW = f"env; echo {END}; exec sleep 600"

# Plural to group, version, and whether it is in namespaces.
KINDS = {
    **{
        plural: ("resource.k8s.io", "v1", namespaced)
        for plural, namespaced in (
            ("resourceclaims", True),
            ("resourceclaimtemplates", True),
            ("resourceslices", False),
            ("deviceclasses", False),
            ("devicetaintrules", False),
        )
    },
    "pods": ("", "v1", True),
    "serviceaccounts": ("", "v1", True),
    "resourcequotas": ("", "v1", True),
    "nodes": ("", "v1", False),
    "events": ("events.k8s.io", "v1", True),
    "podgroups": ("scheduling.k8s.io", "v1beta1", True),
}


def container(name: str, script: str = SHOW, **more: Any) -> Object:
    """A container that runs a script of this machine's shell."""
    return {"name": name, "image": "example.com/main:1", "command": ["sh", "-c", script], **more}


def uses(*entries: str | tuple[str, str]) -> Object:
    """The resources of a container that uses claims, or single requests of them."""
    claims = [{"name": each} if isinstance(each, str) else {"name": each[0], "request": each[1]} for each in entries]
    return {"claims": claims}
