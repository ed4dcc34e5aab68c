"""CertificateApproval, CertificateSigning, CertificateSubjectRestriction and ClusterTrustBundleAttest: who may have certificates
signed, for whom, and who may publish a signer's trust anchors."""

from __future__ import annotations

from typing import Any

from allot.apiserver.admission.attributes import Admission, Authorize, Operation
from allot.apiserver.admission.objects import field, metadata, text
from allot.apiserver.request import Attributes
from allot.apiserver.resources import Resource
from allot.core.access.certificate_requests import CLIENT_SIGNER, read_request

_GROUP = "certificates.k8s.io"
_REQUESTS = (_GROUP, "certificatesigningrequests")
_BUNDLES = (_GROUP, "clustertrustbundles")


class Certificates:
    """The plugins."""

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Creates of signing requests, updates of their approval and status, all writes of trust bundles."""
        key = (resource.group, resource.plural)
        if key == _BUNDLES:
            return operation in (Operation.CREATE, Operation.UPDATE)
        if key != _REQUESTS:
            return False
        if operation is Operation.CREATE:
            return not subresource
        return operation is Operation.UPDATE and subresource in ("approval", "status")

    async def validate(self, admission: Admission) -> None:
        """Refuse, or let pass."""
        if admission.key == _BUNDLES:
            self._check_bundle(admission)
            return
        if admission.operation is Operation.CREATE:
            _check_subject(admission)
            return
        signer = text(field(admission.old, "spec", "signerName"))
        if admission.subresource == "approval":
            if not self._may(admission, "approve", signer):
                raise admission.forbidden(f'user not permitted to approve requests with signerName "{signer}"')
        elif _signed(admission.object) != _signed(admission.old) and not self._may(admission, "sign", signer):
            raise admission.forbidden(f'user not permitted to sign requests with signerName "{signer}"')

    def _check_bundle(self, admission: Admission) -> None:
        """A signer's name cannot change, so the new object shows whose bundle it is."""
        signer = text(field(admission.object, "spec", "signerName"))
        if not signer or (admission.old is not None and _only_collected(admission.object, admission.old)):
            return
        if not self._may(admission, "attest", signer):
            raise admission.forbidden(f'user not permitted to attest for signerName "{signer}"')

    def _may(self, admission: Admission, verb: str, signer: str) -> bool:
        """Whether the user has permission for the signer, or for all signers of its domain."""
        domain = signer.partition("/")[0]
        return any(
            self._authorize(
                Attributes(
                    user=admission.user,
                    verb=verb,
                    group=_GROUP,
                    version="*",
                    resource="signers",
                    name=name,
                )
            ).allowed
            for name in (signer, f"{domain}/*")
        )


def _signed(object_: Any) -> Any:
    conditions = field(object_, "status", "conditions") or []
    failed = [one for one in conditions if isinstance(one, dict) and one.get("type") == "Failed"]
    return field(object_, "status", "certificate"), failed


def _only_collected(object_: Any, old: Any) -> bool:
    """Whether only fields that the garbage collector writes differ."""
    kept = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
    bare = [
        {**one, "metadata": {name: value for name, value in metadata(one).items() if name not in kept}}
        for one in (object_, old)
    ]
    return bare[0] == bare[1]


def _check_subject(admission: Admission) -> None:
    if field(admission.object, "spec", "signerName") != CLIENT_SIGNER:
        return
    subject = read_request(field(admission.object, "spec", "request"))
    if subject is None:
        raise admission.forbidden("failed to parse CSR: PEM block type must be CERTIFICATE REQUEST")
    if "system:masters" in subject.organizations:
        raise admission.forbidden(f"use of {CLIENT_SIGNER} signer with system:masters group is not allowed")
