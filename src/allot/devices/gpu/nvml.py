"""NVML, the library that every NVIDIA driver installs: the few functions that are needed, called through ctypes.

Structures are those of nvml.h (CUDA 12 and later). Knows nothing about Kubernetes; `nvml_hardware` builds on it.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, byref, c_char, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer
from typing import Any

SUCCESS = 0
ERROR_NOT_SUPPORTED = 3
ERROR_NOT_FOUND = 6
ERROR_TIMEOUT = 10
ERROR_FUNCTION_NOT_FOUND = 13
ERROR_GPU_IS_LOST = 15
EVENT_XID_CRITICAL = 0x8
COMPUTE_MODE_DEFAULT = 0
COMPUTE_MODE_EXCLUSIVE_PROCESS = 3
GPU_INSTANCE_PROFILES = range(0x12)
_COMPUTE_INSTANCE_PROFILES = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6}
_TEXT_LENGTH = 96
_INSTANCES_MAX = 16


class NvmlError(Exception):
    """An NVML call failed."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"{function}: {text}")
        self.code = code


class PciInfo(Structure):
    """nvmlPciInfo_t."""

    _fields_ = (
        ("bus_id_legacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pci_device_id", c_uint),
        ("pci_subsystem_id", c_uint),
        ("bus_id", c_char * 32),
    )


class Memory(Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class EventData(Structure):
    """nvmlEventData_t."""

    _fields_ = (
        ("device", c_void_p),
        ("event_type", c_ulonglong),
        ("event_data", c_ulonglong),
        ("gpu_instance_id", c_uint),
        ("compute_instance_id", c_uint),
    )


class InstancePlacement(Structure):
    """nvmlGpuInstancePlacement_t."""

    _fields_ = (("start", c_uint), ("size", c_uint))


class InstanceProfileInfo(Structure):
    """nvmlGpuInstanceProfileInfo_v2_t."""

    _fields_ = (
        ("version", c_uint),
        ("id", c_uint),
        ("is_p2p_supported", c_uint),
        ("slice_count", c_uint),
        ("instance_count", c_uint),
        ("multiprocessor_count", c_uint),
        ("copy_engine_count", c_uint),
        ("decoder_count", c_uint),
        ("encoder_count", c_uint),
        ("jpeg_count", c_uint),
        ("ofa_count", c_uint),
        ("memory_size_mb", c_ulonglong),
        ("name", c_char * 96),
    )


class InstanceInfo(Structure):
    """nvmlGpuInstanceInfo_t."""

    _fields_ = (("device", c_void_p), ("id", c_uint), ("profile_id", c_uint), ("placement", InstancePlacement))


class ComputeProfileInfo(Structure):
    """nvmlComputeInstanceProfileInfo_t."""

    _fields_ = (
        ("id", c_uint),
        ("slice_count", c_uint),
        ("instance_count", c_uint),
        ("multiprocessor_count", c_uint),
        ("shared_copy_engine_count", c_uint),
        ("shared_decoder_count", c_uint),
        ("shared_encoder_count", c_uint),
        ("shared_jpeg_count", c_uint),
        ("shared_ofa_count", c_uint),
    )


class ComputeInstanceInfo(Structure):
    """nvmlComputeInstanceInfo_t."""

    _fields_ = (
        ("device", c_void_p),
        ("gpu_instance", c_void_p),
        ("id", c_uint),
        ("profile_id", c_uint),
        ("placement", InstancePlacement),
    )


class AddressingMode(Structure):
    """nvmlDeviceAddressingMode_v1_t."""

    _fields_ = (("version", c_uint), ("value", c_uint))


def _versioned(type_: type[Structure], version: int) -> int:
    return ctypes.sizeof(type_) | version << 24


class Nvml:
    """An opened NVML. Handles are plain numbers, valid until `close`."""

    def __init__(self, library: str) -> None:
        """OSError if there is no such library."""
        self._library = ctypes.CDLL(library)
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        self._call("nvmlInit_v2")

    def close(self) -> None:
        """Close."""
        self._call("nvmlShutdown")

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NvmlError(name, ERROR_FUNCTION_NOT_FOUND, "not in this version of the library") from None
        code = function(*arguments)
        if code != SUCCESS:
            raise NvmlError(name, code, (self._library.nvmlErrorString(code) or b"unknown error").decode())

    def _number(self, name: str, *arguments: Any) -> int:
        value = c_uint()
        self._call(name, *arguments, byref(value))
        return value.value

    def _text(self, name: str, *arguments: Any) -> str:
        buffer = create_string_buffer(_TEXT_LENGTH)
        self._call(name, *arguments, buffer, c_uint(_TEXT_LENGTH))
        return buffer.value.decode(errors="replace")

    # --- the system ---

    def driver_version(self) -> str:
        """Such as 580.126.20."""
        return self._text("nvmlSystemGetDriverVersion")

    def cuda_driver_version(self) -> str:
        """Such as 13.0."""
        value = c_int()
        self._call("nvmlSystemGetCudaDriverVersion_v2", byref(value))
        return f"{value.value // 1000}.{value.value % 1000 // 10}"

    # --- cards ---

    def devices(self) -> list[int]:
        """Handles of all cards that answer."""
        found = []
        for index in range(self._number("nvmlDeviceGetCount_v2")):
            handle = c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
            found.append(handle.value or 0)
        return found

    def uuid(self, device: int) -> str:
        """`GPU-...` or `MIG-...`."""
        return self._text("nvmlDeviceGetUUID", c_void_p(device))

    def name(self, device: int) -> str:
        """Product name."""
        return self._text("nvmlDeviceGetName", c_void_p(device))

    def minor(self, device: int) -> int:
        """The number in /dev/nvidiaN."""
        return self._number("nvmlDeviceGetMinorNumber", c_void_p(device))

    def brand(self, device: int) -> int:
        """nvmlBrandType_t."""
        return self._number("nvmlDeviceGetBrand", c_void_p(device))

    def architecture(self, device: int) -> int:
        """nvmlDeviceArchitecture_t."""
        return self._number("nvmlDeviceGetArchitecture", c_void_p(device))

    def compute_capability(self, device: int) -> str:
        """Such as 9.0."""
        major, minor = c_int(), c_int()
        self._call("nvmlDeviceGetCudaComputeCapability", c_void_p(device), byref(major), byref(minor))
        return f"{major.value}.{minor.value}"

    def memory_bytes(self, device: int) -> int:
        """Total memory."""
        memory = Memory()
        self._call("nvmlDeviceGetMemoryInfo", c_void_p(device), byref(memory))
        return int(memory.total)

    def pci(self, device: int) -> PciInfo:
        """The PCI location."""
        info = PciInfo()
        self._call("nvmlDeviceGetPciInfo_v3", c_void_p(device), byref(info))
        return info

    def addressing_mode(self, device: int) -> int:
        """0 none, 1 HMM, 2 ATS."""
        mode = AddressingMode(version=_versioned(AddressingMode, 1))
        self._call("nvmlDeviceGetAddressingMode", c_void_p(device), byref(mode))
        return int(mode.value)

    def set_compute_mode(self, device: int, mode: int) -> None:
        """The compute mode."""
        self._call("nvmlDeviceSetComputeMode", c_void_p(device), c_int(mode))

    # --- MIG ---

    def mig_mode(self, device: int) -> bool:
        """Whether MIG is on."""
        current, pending = c_uint(), c_uint()
        self._call("nvmlDeviceGetMigMode", c_void_p(device), byref(current), byref(pending))
        return current.value == 1

    def set_mig_mode(self, device: int, is_on: bool) -> None:
        """Turn MIG on or off; both results are checked."""
        status = c_int()
        self._call("nvmlDeviceSetMigMode", c_void_p(device), c_uint(is_on), byref(status))
        if status.value != SUCCESS:
            text = (self._library.nvmlErrorString(status.value) or b"unknown error").decode()
            raise NvmlError("nvmlDeviceSetMigMode", status.value, f"activation: {text}")

    def instance_profile(self, device: int, profile: int) -> InstanceProfileInfo:
        """The resources of an instance. profile: its index in NVML's list, not its ID."""
        info = InstanceProfileInfo(version=_versioned(InstanceProfileInfo, 2))
        self._call("nvmlDeviceGetGpuInstanceProfileInfoV", c_void_p(device), c_uint(profile), byref(info))
        return info

    def possible_placements(self, device: int, profile_id: int) -> list[tuple[int, int]]:
        """Possible placements of an instance: (start, size)."""
        places, count = (InstancePlacement * _INSTANCES_MAX)(), c_uint(_INSTANCES_MAX)
        self._call(
            "nvmlDeviceGetGpuInstancePossiblePlacements_v2", c_void_p(device), c_uint(profile_id), places, byref(count)
        )
        return [(places[index].start, places[index].size) for index in range(count.value)]

    def instances(self, device: int, profile_id: int) -> list[int]:
        """Handles of the instances of a profile."""
        handles, count = (c_void_p * _INSTANCES_MAX)(), c_uint(_INSTANCES_MAX)
        self._call("nvmlDeviceGetGpuInstances", c_void_p(device), c_uint(profile_id), handles, byref(count))
        return [handles[index] or 0 for index in range(count.value)]

    def instance_info(self, instance: int) -> InstanceInfo:
        """ID and placement of an instance."""
        info = InstanceInfo()
        self._call("nvmlGpuInstanceGetInfo", c_void_p(instance), byref(info))
        return info

    def create_instance(self, device: int, profile_id: int, start: int, size: int) -> int:
        """Create an instance at a placement; returns its handle."""
        handle, placement = c_void_p(), InstancePlacement(start, size)
        self._call(
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            c_void_p(device),
            c_uint(profile_id),
            byref(placement),
            byref(handle),
        )
        return handle.value or 0

    def destroy_instance(self, instance: int) -> None:
        """Destroy an instance whose compute instances are gone."""
        self._call("nvmlGpuInstanceDestroy", c_void_p(instance))

    def compute_profile_id(self, instance: int, slices: int) -> int:
        """The profile of the compute instance that fills an instance with this number of slices."""
        info = ComputeProfileInfo()
        profile = _COMPUTE_INSTANCE_PROFILES[slices]
        self._call(
            "nvmlGpuInstanceGetComputeInstanceProfileInfo", c_void_p(instance), c_uint(profile), c_uint(0), byref(info)
        )
        return int(info.id)

    def create_compute_instance(self, instance: int, profile_id: int) -> int:
        """Create a compute instance; returns its handle."""
        handle = c_void_p()
        self._call("nvmlGpuInstanceCreateComputeInstance", c_void_p(instance), c_uint(profile_id), byref(handle))
        return handle.value or 0

    def compute_instances(self, instance: int, profile_id: int) -> list[int]:
        """Handles of the compute instances of a profile."""
        handles, count = (c_void_p * _INSTANCES_MAX)(), c_uint(_INSTANCES_MAX)
        self._call("nvmlGpuInstanceGetComputeInstances", c_void_p(instance), c_uint(profile_id), handles, byref(count))
        return [handles[index] or 0 for index in range(count.value)]

    def destroy_compute_instance(self, compute_instance: int) -> None:
        """Destroy a compute instance."""
        self._call("nvmlComputeInstanceDestroy", c_void_p(compute_instance))

    def mig_devices(self, device: int) -> list[int]:
        """Handles of the MIG devices of a card, as CUDA sees them."""
        found = []
        for index in range(self._number("nvmlDeviceGetMaxMigDeviceCount", c_void_p(device))):
            handle = c_void_p()
            try:
                self._call("nvmlDeviceGetMigDeviceHandleByIndex", c_void_p(device), c_uint(index), byref(handle))
            except NvmlError as error:
                if error.code in (ERROR_NOT_FOUND, 2):
                    continue
                raise
            found.append(handle.value or 0)
        return found

    def mig_device_ids(self, mig_device: int) -> tuple[int, int]:
        """The IDs of a MIG device's GPU instance and compute instance."""
        return (
            self._number("nvmlDeviceGetGpuInstanceId", c_void_p(mig_device)),
            self._number("nvmlDeviceGetComputeInstanceId", c_void_p(mig_device)),
        )

    # --- events ---

    def create_event_set(self) -> int:
        """Create an event set."""
        handle = c_void_p()
        self._call("nvmlEventSetCreate", byref(handle))
        return handle.value or 0

    def register_events(self, device: int, event_set: int) -> None:
        """Subscribe an event set to a card's errors."""
        self._call("nvmlDeviceRegisterEvents", c_void_p(device), c_ulonglong(EVENT_XID_CRITICAL), c_void_p(event_set))

    def wait_for_event(self, event_set: int, milliseconds: int) -> tuple[int, int] | None:
        """A card's handle and its error number; None without an error."""
        data = EventData()
        try:
            self._call("nvmlEventSetWait_v2", c_void_p(event_set), byref(data), c_uint(milliseconds))
        except NvmlError as error:
            if error.code == ERROR_TIMEOUT:
                return None
            raise
        return data.device or 0, int(data.event_data)

    def free_event_set(self, event_set: int) -> None:
        """Free an event set."""
        self._call("nvmlEventSetFree", c_void_p(event_set))
