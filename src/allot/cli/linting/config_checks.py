"""How allot's drivers judge opaque parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from allot.core.advice.lint.knowledge import ConfigCheck
from allot.devices.cpu import config as cpu
from allot.devices.cpu.inventory import DRIVER_NAME as CPU_DRIVER
from allot.devices.gpu import config as gpu
from allot.devices.gpu.gates import Gates
from allot.devices.gpu.inventory import DRIVER_NAME as GPU_DRIVER
from allot.devices.nic import config as nic
from allot.devices.nic.inventory import DRIVER_NAME as NIC_DRIVER
from allot.driver.configuration import ConfigError, ConfigKind, decode_parameters


def _check_gpu(value: Any) -> None:
    if isinstance(value, gpu.VfioDeviceConfig):
        gpu.check_iommu(value)
        return
    sharing = gpu.normalized_sharing(value, Gates())
    if sharing.mps is not None:
        gpu.pinned_memory_limits_mib(sharing.mps, ())


def _check_nothing(_: Any) -> None:
    """Decoding reports every error."""


def _checker(kinds: Sequence[ConfigKind], check: Callable[[Any], None]) -> ConfigCheck:
    def problem(parameters: Any) -> str:
        try:
            check(decode_parameters(msgspec.json.encode(parameters), kinds))
        except (ConfigError, gpu.ParametersError, nic.ParametersError) as error:
            return str(error)
        return ""

    return problem


CONFIG_CHECKS = {
    GPU_DRIVER: _checker(gpu.KINDS, _check_gpu),
    NIC_DRIVER: _checker(nic.KINDS, nic.check_config),
    CPU_DRIVER: _checker(cpu.KINDS, _check_nothing),
}
