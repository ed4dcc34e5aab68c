"""The volume mounts of a container: from the pod's spec to the runtime's configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from allot.core.lifecycle.pod_environment import BadEnvironment, expand_known
from allot.core.model.containers_v1 import RunnableContainer, VolumeMount
from allot.core.model.pods_v1 import RunnablePod
from allot.core.model.volumes_v1 import RunnableVolume
from allot.node.runtimes.port import Mount, RuntimeFailure
from allot.node.subpaths import open_subpath
from allot.node.volumes import is_read_only

_PROPAGATION = {"HostToContainer": "HostToContainer", "Bidirectional": "Bidirectional"}


class VolumeMounts:
    """The mounts of a container."""

    def __init__(
        self,
        pod: RunnablePod,
        container: RunnableContainer,
        volumes: Mapping[str, Path],
        images: Mapping[str, str],
        variables: Mapping[str, str],
        *,
        recurses: bool,
    ) -> None:
        self._by_name = {each.name: each for each in pod.spec.volumes}
        self._container = container
        self._volumes = volumes
        self._images = images
        self._variables = variables
        self._recurses = recurses

    def make(self) -> tuple[Mount, ...]:
        """All of them. RuntimeFailure names the first unavailable one."""
        return tuple(self._mount(each) for each in self._container.volume_mounts)

    def _mount(self, wanted: VolumeMount) -> Mount:
        source, image = self._volumes.get(wanted.name), self._images.get(wanted.name, "")
        if source is None and not image:
            raise self._failure(f'cannot find volume "{wanted.name}" to mount into container "{self._container.name}"')
        below = self._sub_path(wanted)
        if below and source is not None:
            _check_subpath(source, below, self._container.name, wanted.name)
        return Mount(
            host_path="" if source is None or image else str(source),
            image=image,
            sub_path=below,
            container_path=wanted.mount_path,
            read_only=wanted.read_only or self._is_read_only(self._by_name.get(wanted.name)),
            recursive_read_only=self._is_recursive(wanted),
            propagation=_PROPAGATION.get(wanted.mount_propagation, "None"),
        )

    def _is_read_only(self, volume: RunnableVolume | None) -> bool:
        return volume is not None and is_read_only(volume)

    def _sub_path(self, wanted: VolumeMount) -> str:
        if not wanted.sub_path_expr:
            return wanted.sub_path
        try:
            return expand_known(wanted.sub_path_expr, self._variables)
        except BadEnvironment as error:
            what = f'failed to expand subPathExpr of volumeMount "{wanted.name}" of container "{self._container.name}"'
            raise self._failure(f"{what}: {error}") from error

    def _is_recursive(self, wanted: VolumeMount) -> bool:
        """Whether mounts below are read-only, too: if the pod requests it and the runtime supports it."""
        if wanted.recursive_read_only in ("", "Disabled"):
            return False
        what = f'failed to resolve recursive read-only mode: volume "{wanted.name}" requested recursive read-only mode, but it is'
        if not wanted.read_only:
            raise self._failure(f"{what} not read-only")
        if wanted.mount_propagation not in ("", "None"):
            raise self._failure(f'{what} not compatible with propagation "{wanted.mount_propagation}"')
        if wanted.recursive_read_only == "Enabled" and not self._recurses:
            raise self._failure(f"{what} not supported by the runtime")
        return self._recurses

    def _failure(self, text: str) -> RuntimeFailure:
        return RuntimeFailure("CreateContainerConfigError", text)


def _check_subpath(source: Path, below: str, container: str, volume: str) -> None:
    """Report a bad subPath early. The mount checks again, atomically."""
    what = f'failed to prepare subPath for volumeMount "{volume}" of container "{container}"'
    path = PurePosixPath(below)
    if path.is_absolute() or ".." in path.parts:
        text = f'{what}: "{below}": expected a relative path without ".."'
        raise RuntimeFailure("CreateContainerConfigError", text)
    if not source.exists():
        return  # a simulated container never uses its volumes
    try:
        os.close(open_subpath(str(source), below))
    except (OSError, ValueError) as error:
        raise RuntimeFailure("CreateContainerConfigError", f"{what}: {error}") from error
