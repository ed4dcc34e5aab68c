"""Logs refused callers of the agent, because an API server does not pass the reason on to users."""

from __future__ import annotations

import logging
import ssl

from allot.process.clock import Clock

_log = logging.getLogger("allot.node")

# A refused client retries often.
_TOLD_AGAIN_S = 600.0


class Refusals:
    """Logs each reason occasionally."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_at: dict[str, float] = {}

    def without_certificate(self, what: str) -> None:
        """A client without credentials. what: the request."""
        self._tell(
            "a client showed neither a certificate nor a token",
            "start it with --kubelet-client-certificate and --kubelet-client-key, and name the authority of that certificate "
            f"here with --client-ca-file if it is not the kubeconfig's (it was {what})",
        )

    def unknown_authority(self, error: ssl.SSLCertVerificationError) -> None:
        """A client with an invalid certificate."""
        self._tell(
            f"a client's certificate does not count ({error.verify_message})",
            "name the authority of its --kubelet-client-certificate here, with --client-ca-file",
        )

    def _tell(self, what: str, remedy: str) -> None:
        now = self._clock.monotonic()
        told_at = self._told_at.get(what)
        if told_at is None or now - told_at > _TOLD_AGAIN_S:
            self._told_at[what] = now
            _log.warning("%s. If that is the API server, logs and exec fail: %s", what, remedy)


def watch_handshakes(context: ssl.SSLContext, refusals: Refusals) -> None:
    """Report refused certificates: the event loop drops such connections silently."""

    class Watched(ssl.SSLObject):
        """One side of a connection."""

        def do_handshake(self) -> None:
            """Like the base class, but reports failures."""
            try:
                super().do_handshake()
            except ssl.SSLCertVerificationError as error:
                refusals.unknown_authority(error)
                raise

    context.sslobject_class = Watched
