"""Options of gRPC channels: all of ours connect again in the same way."""

from __future__ import annotations

RECONNECTING = (
    # Soon, to a server that comes back.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3_000),
    # Not a pause, whatever its name says: how long an attempt to connect may take. The kubelet's value; a busy server may need a second
    # for its first frame, and a call fails with the attempt.
    ("grpc.min_reconnect_backoff_ms", 5_000),
)
