"""Access control. The dashboard is for the user who started it, not for other web pages in the same browser.

- The Host header must be a name of the server: a page whose name was pointed here (DNS rebinding) has another.
- Requests from a page of another origin are refused.
- A link has a token that works once; it becomes a cookie that scripts cannot read and other sites cannot send (`sessions`).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable

from allot.dashboard.links import new_token
from allot.dashboard.sessions import LASTS_S, Sessions
from allot.http1.heads import HttpError
from allot.http1.requests import Request

TOKEN_HEADER = "x-allot-token"
# Guessing a token of 256 bits is hopeless, but attempts are limited anyway.
_TRIES_MAX = 1000
_SAME = ("same-origin", "none", "")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "manifest-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'; require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Door:
    """Checks requests. sessions: of browsers that are logged in; hosts: names of the server, or of a proxy in front of it, besides those of this machine; announce: receives each token; token: the first."""

    def __init__(
        self,
        sessions: Sessions,
        hosts: Iterable[str] = (),
        announce: Callable[[str], None] = lambda _token: None,
        token: str = "",
    ) -> None:
        self._sessions = sessions
        self._further = frozenset(host.lower() for host in hosts)
        self._announce = announce
        self._token = token or new_token()
        self._failures = 0
        self._port = 0

    def open(self, port: int) -> None:
        """Start accepting requests at this port."""
        self._port = port
        self._announce(self._token)

    @property
    def cookie_name(self) -> str:
        """Its own for each port: browsers give cookies to all ports of a host."""
        return f"allot-dashboard-{self._port}"

    def check(self, request: Request) -> None:
        """HttpError 403 for requests with another host name, or from another page."""
        host = request.header("host").lower()
        if not self._is_known(host):
            raise HttpError(
                403,
                f"host {host[:200]!r}: expected the address that allot dashboard printed, or a name of --allow-host",
            )
        origin = request.header("origin").lower()
        scheme, _, origin_host = origin.partition("://")
        # A proxy may call the server by another name than browsers call the proxy; then both names were allowed.
        is_own = scheme in ("http", "https") and (origin_host == host or _without_port(origin_host) in self._further)
        if origin and not is_own:
            raise HttpError(403, f"origin {origin[:200]!r}: requests from other pages are refused")

    def _is_known(self, host: str) -> bool:
        """Names of this machine only with our port: its other ports are other servers. Proxies may have any port."""
        return _without_port(host) in self._further or host in {f"{name}:{self._port}" for name in _LOOPBACK}

    def check_data(self, request: Request) -> None:
        """HttpError for requests without access to data: 403 from another site, 401 without a session."""
        if request.header("sec-fetch-site") not in _SAME:
            raise HttpError(403, "requests from other sites are refused")
        if not self.has_session(request):
            raise HttpError(401, "open the link that allot dashboard printed")

    def has_session(self, request: Request) -> bool:
        """Whether the browser is logged in, still."""
        for part in request.header("cookie").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie_name and self._sessions.is_good(value):
                return True
        return False

    def exchange(self, request: Request) -> str:
        """The cookie for a token, which then is used up. HttpError."""
        origin = request.header("origin").lower()
        if not origin or request.header("sec-fetch-site") not in _SAME:
            raise HttpError(403, "a token is exchanged by the dashboard's own page only")
        given = request.header(TOKEN_HEADER)
        if self._failures >= _TRIES_MAX:
            raise HttpError(403, "too many wrong tokens: start the dashboard again")
        if not given or not hmac.compare_digest(given.encode(), self._token.encode()):
            self._failures += 1
            raise HttpError(
                403,
                "the token is wrong or has been used: each link works once, and a new one is printed after it was used",
            )
        self._token = new_token()
        self._announce(self._token)
        # Without a path, the cookie is only for the page's path: behind a proxy, others share the origin. What counts is how
        # browsers reach the proxy, not how the proxy reaches us.
        secure = "; Secure" if origin.startswith("https:") else ""
        session, lasts = self._sessions.new(), int(LASTS_S)
        return f"{self.cookie_name}={session}; Max-Age={lasts}; HttpOnly; SameSite=Strict{secure}"


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
