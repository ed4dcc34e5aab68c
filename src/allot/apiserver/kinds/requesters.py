"""Who asked for a certificate: signing requests carry the user who created them, whatever they say themselves."""

from __future__ import annotations

from allot.apiserver.request import User
from allot.apiserver.resources import Object, Resource
from allot.core.validation.builtin.values import members

_MEMBERS = ("username", "uid", "groups", "extra")


def with_requester(resource: Resource, object_: Object, user: User) -> Object:
    """A new object; a signing request with its requester."""
    if (resource.group, resource.kind) != ("certificates.k8s.io", "CertificateSigningRequest"):
        return object_
    spec = {name: value for name, value in members(object_, "spec").items() if name not in _MEMBERS}
    told = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {name: list(values) for name, values in user.extra.items()},
    }
    return {**object_, "spec": spec | {name: value for name, value in told.items() if value}}
