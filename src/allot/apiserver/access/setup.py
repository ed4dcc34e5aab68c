"""Everything about access that a server needs, opened from its data directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from allot.apiserver.access.authentication import Authenticator, read_static_tokens
from allot.apiserver.access.authorizer import Authorizer
from allot.apiserver.access.certificates import ADMIN, Certificates, Identity
from allot.apiserver.access.kubeconfig import write_kubeconfig
from allot.apiserver.access.object_getter import ObjectGetter
from allot.apiserver.access.service_account_tokens import ServiceAccountTokens
from allot.apiserver.access.token_key import TokenKey, read_verifying_keys
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.process.clock import Clock
from allot.process.ids import Ids


class Access(msgspec.Struct, frozen=True):
    """The parts, each usable on its own."""

    certificates: Certificates
    tokens: ServiceAccountTokens
    authenticator: Authenticator
    authorizer: Authorizer

    def write_admin_kubeconfig(self, path: Path, server_url: str, name: str = "allot") -> None:
        """The administrator's kubeconfig."""
        self.write_kubeconfig(path, server_url, "admin", ADMIN, name)

    def write_kubeconfig(
        self, path: Path, server_url: str, file_name: str, identity: Identity, name: str = "allot"
    ) -> None:
        """A user's kubeconfig. file_name: the name of the stored certificate."""
        pair = self.certificates.client(file_name, identity)
        write_kubeconfig(path, server_url, self.certificates.authority.pem, pair.certificate, pair.key, name)


def open_access(
    directory: Path,
    lookup: ObjectGetter,
    clock: Clock,
    ids: Ids,
    *,
    names: Sequence[str] = (),
    token_file: Path | None = None,
    signing_key_file: Path | None = None,
    verifying_key_files: Sequence[Path] = (),
    gates: FeatureGates = DEFAULT_GATES,
) -> Access:
    """Open, or at first start create, keys and certificates below a directory. names: additional names of the server.
    signing_key_file: signs tokens instead of the directory's key; verifying_key_files: other keys that may have signed tokens."""
    certificates = Certificates(directory, clock, names)
    others = tuple(key for path in verifying_key_files for key in read_verifying_keys(path))
    key = TokenKey.open(directory, others) if signing_key_file is None else TokenKey.read(signing_key_file, others)
    tokens = ServiceAccountTokens(key, lookup, clock, ids)
    static = read_static_tokens(token_file) if token_file is not None else None
    authenticator = Authenticator(certificates.authority, clock, tokens, static, certificates.front_proxy_authority)
    return Access(certificates, tokens, authenticator, Authorizer(gates))
