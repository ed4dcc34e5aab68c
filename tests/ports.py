"""Ports for servers that have to be told theirs."""

from __future__ import annotations

import functools
import itertools
import os
import socket
from collections.abc import Iterator

from workers import NUMBER

# Below the ports that the kernel gives away by itself: nothing takes one of these between its choice and its use.
_FIRST = 10_000
_WORKERS = 20
_EACH = 1_000


def _own() -> range:
    """Those of this worker of the tests."""
    worker = int(os.environ.get(NUMBER, "0")) % _WORKERS
    return range(_FIRST + worker * _EACH, _FIRST + (worker + 1) * _EACH)


@functools.cache
def _candidates() -> Iterator[int]:
    """Not before a worker has become one. Two runs on one machine hardly begin at the same port."""
    return itertools.islice(itertools.cycle(_own()), os.getpid() * 37 % _EACH, None)


def free_port() -> int:
    """A port that nothing uses, and that is not given again soon."""
    for port in itertools.islice(_candidates(), _EACH):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"all ports of {_own()} are in use")
