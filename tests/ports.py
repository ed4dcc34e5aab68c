"""Ports for servers that have to be told theirs."""

from __future__ import annotations

import itertools
import os
import socket

# Below the ports that the kernel gives away by itself: nothing takes one of these between its choice and its use.
_FIRST = 10_000
_WORKERS = 20
_EACH = 1_000


def _own() -> range:
    """Those of this worker of the tests."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    return range(_FIRST + worker * _EACH, _FIRST + (worker + 1) * _EACH)


# Two runs on one machine hardly begin at the same one.
_candidates = itertools.islice(itertools.cycle(_own()), os.getpid() * 37 % _EACH, None)


def free_port() -> int:
    """A port that nothing uses, and that is not given again soon."""
    for port in itertools.islice(_candidates, _EACH):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"all ports of {_own()} are in use")
