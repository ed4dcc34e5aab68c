"""What extension API servers need to know to authenticate clients as this server does: ConfigMap extension-apiserver-authentication.

Several servers may share a store, each with its own authorities: what others have written stays, and one's own is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from allot.core.access.front_proxy import EXTRA_PREFIX, GROUP_HEADER, UID_HEADER, USER_HEADER

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
_CLIENTS, _PROXIES = "client-ca-file", "requestheader-client-ca-file"
_HEADERS = {
    "requestheader-username-headers": USER_HEADER,
    "requestheader-uid-headers": UID_HEADER,
    "requestheader-group-headers": GROUP_HEADER,
    "requestheader-extra-headers-prefix": EXTRA_PREFIX,
}
_NAMES = "requestheader-allowed-names"


def with_trust(
    present: Mapping[str, Any], clients: bytes, proxies: bytes, names: Sequence[str], now: float
) -> dict[str, str]:
    """The data of the ConfigMap with a server's own. clients, proxies: authorities of client certificates and of front proxies,
    as PEM; names: those that a front proxy may have."""
    told = {
        _CLIENTS: _joined(present.get(_CLIENTS), clients, now),
        _PROXIES: _joined(present.get(_PROXIES), proxies, now),
        _NAMES: _listed(present.get(_NAMES), names),
    }
    return told | {key: _listed(present.get(key), [header]) for key, header in _HEADERS.items()}


def _listed(present: Any, wanted: Sequence[str]) -> str:
    try:
        before = msgspec.json.decode(str(present or "[]"), type=list[str])
    except msgspec.DecodeError:
        before = []
    return msgspec.json.encode(list(dict.fromkeys((*before, *wanted)))).decode()


def _joined(present: Any, wanted: bytes, now: float) -> str:
    """Certificates, each once, without those that have expired."""
    try:
        before = x509.load_pem_x509_certificates(str(present or "").encode()) if present else []
    except ValueError:
        before = []
    found = (*before, *x509.load_pem_x509_certificates(wanted))
    kept = dict.fromkeys(each.public_bytes(Encoding.PEM).decode() for each in found if _lasts(each, now))
    return "".join(kept)


def _lasts(certificate: x509.Certificate, now: float) -> bool:
    return certificate.not_valid_after_utc.timestamp() > now
