"""Volumes of pods: folders that are made, filled, kept up to date and removed.

emptyDir, hostPath, configMap, secret, downwardAPI and projected volumes. Files change all at once: a new folder is filled and a
link moved, as the kubelet does it, so that a program never sees half of a change.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import msgspec

from allot.core.lifecycle.pod_environment import BadEnvironment, PodFacts, field, resource_field
from allot.core.model.pods_v1 import (
    ConfigMapSource,
    DownwardSource,
    HostPath,
    KeyToPath,
    Pod,
    Projection,
    SecretSource,
    TokenSource,
    Volume,
)
from allot.node.objects import Missing, Objects
from allot.process.clock import Clock

_MODE = 0o644
_LINK = "..data"


class MountFailure(Exception):
    """A volume that cannot be had, in the kubelet's words."""


class _File(msgspec.Struct, frozen=True):
    data: bytes
    mode: int


Files = dict[str, _File]


class Volumes:
    """The volumes of all pods, below one folder."""

    def __init__(self, folder: Path, objects: Objects, clock: Clock) -> None:
        self._folder = folder
        self._objects = objects
        self._clock = clock
        # Per pod and file: when a token has to be fetched again, and the token.
        self._tokens: dict[tuple[str, str, str], tuple[float, bytes]] = {}

    def pod_folder(self, uid: str) -> Path:
        """Everything of one pod."""
        return self._folder / uid

    async def set_up(self, pod: Pod, facts: PodFacts) -> Mapping[str, Path]:
        """Make all volumes, or bring them up to date; where they are by name."""
        found: dict[str, Path] = {}

        async def set_up(volume: Volume) -> None:
            try:
                found[volume.name] = await self._set_up(pod, volume, facts)
            except (Missing, BadEnvironment, OSError) as error:
                text = f'MountVolume.SetUp failed for volume "{volume.name}" : {error}'
                raise MountFailure(text) from error

        try:
            async with asyncio.TaskGroup() as tasks:
                for volume in pod.spec.volumes:
                    tasks.create_task(set_up(volume))
        except* MountFailure as group:
            raise group.exceptions[0] from None
        return found

    def tear_down(self, uid: str) -> None:
        """Remove everything of a pod but its host paths."""
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]
        shutil.rmtree(self.pod_folder(uid), ignore_errors=True)

    def uids(self) -> tuple[str, ...]:
        """The pods of which something is there."""
        try:
            return tuple(sorted(each.name for each in self._folder.iterdir()))
        except OSError:
            return ()

    async def _set_up(self, pod: Pod, volume: Volume, facts: PodFacts) -> Path:
        if volume.host_path is not None:
            return _host_path(volume.host_path)
        kind, files = await self._files(pod, volume, facts)
        # Containers get to their volumes by mounts; nobody else has anything to look for here.
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self.pod_folder(pod.metadata.uid) / "volumes" / f"kubernetes.io~{kind}" / volume.name
        await asyncio.to_thread(_make, folder, pod, files)
        return folder

    async def _files(self, pod: Pod, volume: Volume, facts: PodFacts) -> tuple[str, Files | None]:
        if volume.empty_dir is not None:
            return "empty-dir", None
        if volume.config_map is not None:
            return "configmap", await self._config_map(pod, volume.config_map, volume.config_map.default_mode)
        if volume.secret is not None:
            return "secret", await self._secret(pod, volume.secret, volume.secret.default_mode)
        if volume.downward_api is not None:
            return "downward-api", _downward(pod, volume.downward_api, volume.downward_api.default_mode, facts)
        if volume.projected is not None:
            mode = volume.projected.default_mode
            parts = await asyncio.gather(
                *(self._projection(pod, volume, source, mode, facts) for source in volume.projected.sources)
            )
            return "projected", {name: file for part in parts for name, file in part.items()}
        raise Missing("the agent has no plugin for this kind of volume")

    async def _projection(
        self, pod: Pod, volume: Volume, source: Projection, mode: int | None, facts: PodFacts
    ) -> Files:
        if source.config_map is not None:
            return await self._config_map(pod, source.config_map, mode)
        if source.secret is not None:
            return await self._secret(pod, source.secret, mode)
        if source.downward_api is not None:
            return _downward(pod, source.downward_api, mode, facts)
        if source.service_account_token is not None:
            return await self._token(pod, volume, source.service_account_token, mode)
        raise Missing("the agent does not know this source of a projected volume")

    async def _config_map(self, pod: Pod, source: ConfigMapSource, mode: int | None) -> Files:
        data = await self._objects.config_map(pod.metadata.namespace, source.name)
        if data is None:
            if source.optional:
                return {}
            raise Missing(f'configmap "{source.name}" not found')
        return _chosen(data, source.items, mode, source.optional, "configmap")

    async def _secret(self, pod: Pod, source: SecretSource, mode: int | None) -> Files:
        name = source.secret_name or source.name
        data = await self._objects.secret(pod.metadata.namespace, name)
        if data is None:
            if source.optional:
                return {}
            raise Missing(f'secret "{name}" not found')
        return _chosen(data, source.items, mode, source.optional, "secret")

    async def _token(self, pod: Pod, volume: Volume, source: TokenSource, mode: int | None) -> Files:
        key = (pod.metadata.uid, volume.name, source.path)
        now = self._clock.seconds()
        due, text = self._tokens.get(key, (0.0, b""))
        if now >= due:
            token = await self._objects.token(pod, source.audience, source.expiration_seconds)
            # As the kubelet: anew after four fifths of its time, and each day.
            due = now + min(0.8 * (token.expires_at - now), 24 * 3600.0)
            text = token.text.encode()
            self._tokens[key] = (due, text)
        return {source.path: _File(text, _MODE if mode is None else mode)}


def _chosen(
    data: Mapping[str, bytes], items: tuple[KeyToPath, ...], mode: int | None, optional: bool, kind: str
) -> Files:
    usual = _MODE if mode is None else mode
    if not items:
        return {key: _File(value, usual) for key, value in data.items()}
    found: Files = {}
    for item in items:
        if item.key in data:
            found[item.path] = _File(data[item.key], usual if item.mode is None else item.mode)
        elif not optional:
            raise Missing(f"references non-existent {kind} key: {item.key}")
    return found


def _downward(pod: Pod, source: DownwardSource, mode: int | None, facts: PodFacts) -> Files:
    found: Files = {}
    for item in source.items:
        text = ""
        if item.field_ref is not None:
            text = field(pod, item.field_ref, facts)
        elif item.resource_field_ref is not None:
            text = resource_field(pod, item.resource_field_ref, facts, "")
        chosen = item.mode if item.mode is not None else mode
        found[item.path] = _File(text.encode(), _MODE if chosen is None else chosen)
    return found


# --- on disk ---


def _host_path(source: HostPath) -> Path:
    path = Path(source.path)
    if source.type == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif source.type == "FileOrCreate":
        path.touch(mode=0o644, exist_ok=True)
    checks = {
        "Directory": path.is_dir,
        "DirectoryOrCreate": path.is_dir,
        "File": path.is_file,
        "FileOrCreate": path.is_file,
        "Socket": path.is_socket,
        "CharDevice": path.is_char_device,
        "BlockDevice": path.is_block_device,
    }
    check = checks.get(source.type)
    if check is not None and not check():
        kind = source.type.removesuffix("OrCreate").lower()
        raise Missing(f"hostPath type check failed: {path} is not a {kind}")
    if check is None and not path.exists():
        # As a container runtime does with a mount whose source is missing.
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    return path


def _make(folder: Path, pod: Pod, files: Files | None) -> None:
    """A folder with these files, or an empty one that is left alone when it is there."""
    if not folder.is_dir():
        folder.mkdir(mode=0o777, parents=True)
        folder.chmod(0o777)
    context = pod.spec.security_context
    if context is not None and context.fs_group is not None and os.geteuid() == 0:
        os.chown(folder, -1, context.fs_group)
        folder.chmod(0o2777)
    if files is not None:
        _write(folder, files)


def _write(folder: Path, files: Files) -> None:
    link = folder / _LINK
    before = _present(link)
    if before == files:
        return
    fresh = folder / f"..{os.urandom(6).hex()}"
    fresh.mkdir(mode=0o755)
    for name, file in files.items():
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise Missing(f"invalid path: {name}")
        path = fresh / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        path.chmod(file.mode)
    old = folder / link.readlink() if link.is_symlink() else None
    temporary = folder / "..data_tmp"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(fresh.name)
    temporary.replace(link)
    tops = {PurePosixPath(name).parts[0] for name in files}
    for name in sorted(tops):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{_LINK}/{name}")
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in tops:
            entry.unlink(missing_ok=True)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _present(link: Path) -> Files | None:
    if not link.is_symlink():
        return None
    root = link.parent / link.readlink()
    try:
        return {
            str(path.relative_to(root)): _File(path.read_bytes(), path.stat().st_mode & 0o7777)
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }
    except OSError:
        return None
