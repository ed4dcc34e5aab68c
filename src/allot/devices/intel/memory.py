"""The local memory of a GPU, from the kernel's graphics drivers.

Both answer a query in two steps, first its length, then the memory regions, of which only the device's count. Numbers
and layouts are those of the kernel's user API (drm-i915-uapi and drm-xe-uapi in the kernel's documentation, 6.8).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from pathlib import Path

_XE_DEVICE_QUERY, _XE_QUERY = 0xC0286440, struct.Struct("=QIIQ16x")
_XE_MEMORY_REGIONS = 1
_I915_QUERY, _I915_HEAD, _I915_ITEM = 0xC0106479, struct.Struct("=IIQ"), struct.Struct("=QiIQ")
_I915_MEMORY_REGIONS = 4
# Class, then size; the rest is skipped.
_XE_REGION, _XE_REGIONS = struct.Struct("=HHIQ72x"), struct.Struct("=I4x")
_I915_REGION, _I915_REGIONS = struct.Struct("=HHIQ72x"), struct.Struct("=I12x")
_OF_THE_DEVICE = 1
# Larger than any answer.
_ANSWER_MAX = 1 << 16
_MIB = 2**20


def memory_mib(device_file: Path, kernel_driver: str) -> int:
    """The memory of a card; 0 without memory or permission."""
    ask, head, region = {
        "i915": (_ask_i915, _I915_REGIONS, _I915_REGION),
        "xe": (_ask_xe, _XE_REGIONS, _XE_REGION),
    }[kernel_driver]
    try:
        # Render nodes refuse the query.
        file = os.open(device_file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return device_memory_mib(ask(file), head, region)
    except OSError:
        return 0
    finally:
        os.close(file)


def device_memory_mib(answer: bytes, head: struct.Struct = _XE_REGIONS, region: struct.Struct = _XE_REGION) -> int:
    """The total size of the device's regions in an answer."""
    if len(answer) < head.size:
        return 0
    (count,) = head.unpack_from(answer)
    total = 0
    for number in range(min(count, (len(answer) - head.size) // region.size)):
        kind, _, _, size = region.unpack_from(answer, head.size + number * region.size)
        if kind == _OF_THE_DEVICE:
            total += size
    return total // _MIB


def _ask_xe(file: int) -> bytes:
    answer = bytearray(_XE_QUERY.pack(0, _XE_MEMORY_REGIONS, 0, 0))
    fcntl.ioctl(file, _XE_DEVICE_QUERY, answer)
    size = _XE_QUERY.unpack(answer)[2]
    if not 0 < size <= _ANSWER_MAX:
        return b""
    buffer = ctypes.create_string_buffer(size)
    fcntl.ioctl(
        file, _XE_DEVICE_QUERY, bytearray(_XE_QUERY.pack(0, _XE_MEMORY_REGIONS, size, ctypes.addressof(buffer)))
    )
    return buffer.raw


def _ask_i915(file: int) -> bytes:
    item = ctypes.create_string_buffer(_I915_ITEM.pack(_I915_MEMORY_REGIONS, 0, 0, 0), _I915_ITEM.size)
    query = bytearray(_I915_HEAD.pack(1, 0, ctypes.addressof(item)))
    fcntl.ioctl(file, _I915_QUERY, query)
    size = _I915_ITEM.unpack(item.raw)[1]
    if not 0 < size <= _ANSWER_MAX:
        return b""
    buffer = ctypes.create_string_buffer(size)
    item.raw = _I915_ITEM.pack(_I915_MEMORY_REGIONS, size, 0, ctypes.addressof(buffer))
    fcntl.ioctl(file, _I915_QUERY, query)
    return buffer.raw
