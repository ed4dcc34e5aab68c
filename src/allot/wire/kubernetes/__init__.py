"""Decodes request bodies in Kubernetes' protobuf format to JSON values.

Typed clients of client-go since 1.32, kubectl among them, and Kubernetes' components send protobuf by default, and
accept JSON in response. Nothing is written in this format.
"""

from __future__ import annotations

from allot.wire.kubernetes.envelope import MAGIC, NotReadable, read
from allot.wire.kubernetes.wire import Malformed

__all__ = ["MAGIC", "Malformed", "NotReadable", "read"]
