"""Volumes of pods: creates, fills, updates and removes directories.

emptyDir, hostPath, configMap, secret, downwardAPI and projected volumes, and the volumes of claims as far as they are folders of
the machine (hostPath, local). Files change atomically: a new folder is filled and a link moved, as the kubelet does, so that a program
never sees half of a change. Containers can only read what the agent writes; what they can write to (emptyDir), the agent only creates
and removes, and follows no link in it (`process.beneath`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from allot.core.lifecycle.certificate_files import trust_anchors
from allot.core.lifecycle.pod_environment import BadEnvironment, PodFacts, field, resource_field
from allot.core.lifecycle.pod_storage import MEMORY, eviction_text, memory_volume_bytes, size_limit_bytes
from allot.core.lifecycle.pod_users import fs_user
from allot.core.model.pods_v1 import RunnablePod
from allot.core.model.volumes_v1 import (
    ClusterTrustBundleProjection,
    ConfigMapVolumeSource,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    KeyToPath,
    PodCertificateProjection,
    RunnableVolume,
    SecretVolumeSource,
    ServiceAccountTokenProjection,
    VolumeProjection,
)
from allot.core.workloads.volume_binding import PROVISIONED_BY
from allot.node.empty_dirs import KIND as EMPTY
from allot.node.empty_dirs import TooDeep, make_folder, make_memory, used_bytes
from allot.node.objects import Missing, Objects
from allot.node.pod_certificates import PodCertificates
from allot.node.pod_folders import MESSAGES, opened, unmount_below
from allot.node.subpaths import SUBPATHS
from allot.process.beneath import (
    FOLDER,
    BadName,
    checked_name,
    open_folder,
    read_file,
    remove_entry,
    remove_tree,
    write_file,
)
from allot.process.clock import Clock

_log = logging.getLogger("allot.node")

_MODE = 0o644
# For a token that belongs to one user or group.
_PRIVATE_MODE = 0o600
_LINK = "..data"
# Larger than any object that the API accepts.
_FILE_BYTES_MAX = 4 * 1024 * 1024
# The permissions of the group that owns a pod's files (fsGroup): reading, and traversing folders, as with the kubelet.
_GROUP_READS, _GROUP_PASSES = 0o440, 0o2550


class MountFailure(Exception):
    """An unavailable volume, in the kubelet's words."""


class _File(msgspec.Struct, frozen=True):
    """user: the owner, if not the agent."""

    data: bytes
    mode: int
    user: int | None = None


Files = dict[str, _File]


class Volumes:
    """The volumes of all pods, below one folder. is_mounted: whether containers see what the agent mounts; a runtime that creates namespaces
    itself keeps memory volumes there, and has no images to mount."""

    def __init__(
        self,
        folder: Path,
        objects: Objects,
        clock: Clock,
        certificates: PodCertificates | None = None,
        *,
        is_mounted: bool = False,
    ) -> None:
        """certificates: None if pods get none."""
        self._folder = folder
        self._objects = objects
        self._certificates = certificates
        self._clock = clock
        self._is_mounted = is_mounted
        # Per pod and file: when to fetch a token again, and the token.
        self._tokens: dict[tuple[str, str, str], tuple[float, bytes]] = {}
        # Per pod and volume: the path of a claim's volume, which does not change while the pod uses it.
        self._claimed: dict[tuple[str, str], Path] = {}

    def pod_folder(self, uid: str) -> Path:
        """The folder of one pod. BadName if the uid is invalid."""
        return self._folder / checked_name(uid, "pod: metadata.uid")

    async def set_up(self, pod: RunnablePod, facts: PodFacts) -> Mapping[str, Path]:
        """Create or update all volumes; returns their paths by name. Image volumes have none: the runtime mounts them."""
        found: dict[str, Path] = {}
        await asyncio.to_thread(self._make_messages, pod)

        async def set_up(volume: RunnableVolume) -> None:
            try:
                found[volume.name] = await self._set_up(pod, volume, facts)
            except (Missing, BadEnvironment, BadName, OSError) as error:
                text = f'MountVolume.SetUp failed for volume "{volume.name}" : {error}'
                raise MountFailure(text) from error

        try:
            async with asyncio.TaskGroup() as tasks:
                for volume in pod.spec.volumes:
                    if volume.image is None or not self._is_mounted:
                        tasks.create_task(set_up(volume))
        except* MountFailure as group:
            raise group.exceptions[0] from None
        return found

    def _make_messages(self, pod: RunnablePod) -> None:
        """Create the folder for termination messages: before the first container, so that the runtime can keep it in memory."""
        try:
            with opened(self.pod_folder(pod.metadata.uid), MESSAGES):
                pass
        except (BadName, OSError) as error:
            raise MountFailure(f"directory of pod {pod.key}: {error}") from error

    def tear_down(self, uid: str) -> None:
        """Remove everything of a pod except its host paths and the volumes of claims."""
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]
        for place in [place for place in self._claimed if place[0] == uid]:
            del self._claimed[place]
        if self._certificates is not None:
            self._certificates.forget(uid)
        folder = self.pod_folder(uid)
        try:
            unmount_below(folder, SUBPATHS)
            if self._is_mounted:
                unmount_below(folder, _around(EMPTY))
            remove_tree(folder)
        except OSError as error:
            _log.warning("pod %s: %s is not removed: %s", uid, folder, error)

    def uids(self) -> tuple[str, ...]:
        """The pods that have folders."""
        try:
            return tuple(sorted(each.name for each in self._folder.iterdir()))
        except OSError:
            return ()

    async def _set_up(self, pod: RunnablePod, volume: RunnableVolume, facts: PodFacts) -> Path:
        if volume.host_path is not None:
            return self._host_path(pod, volume.host_path)
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            return await self._of_claim(pod, volume)
        kind, files = await self._files(pod, volume, facts)
        name = checked_name(volume.name, f"pod {pod.key}: volume")
        around = _around(kind)
        folder = self.pod_folder(pod.metadata.uid)
        context = pod.spec.security_context
        # Only root can give files to a group that it is not a member of.
        group = context.fs_group if context is not None and os.geteuid() == 0 else None

        def make() -> None:
            with opened(folder, around) as handle:
                if volume.empty_dir is not None:
                    self._make_empty(pod, volume.empty_dir, facts, handle, name, group)
                elif files is not None:
                    _make_filled(handle, name, group, files)

        await asyncio.to_thread(make)
        return folder / around / name

    def _make_empty(
        self, pod: RunnablePod, source: EmptyDirVolumeSource, facts: PodFacts, around: int, name: str, group: int | None
    ) -> None:
        if source.medium == MEMORY and self._is_mounted:
            make_memory(around, name, group, memory_volume_bytes(pod, source, facts.allocatable))
        elif source.medium in ("", MEMORY):
            make_folder(around, name, group)
        else:
            raise Missing(f'medium "{source.medium}" of emptyDir: expected "" or "Memory"')

    def excess(self, pod: RunnablePod) -> str:
        """Why a pod must be evicted: one of its emptyDirs exceeds its limit. Empty if none does."""
        for volume in pod.spec.volumes:
            limit = size_limit_bytes(volume.empty_dir) if volume.empty_dir is not None else None
            if volume.empty_dir is None or limit is None:
                continue
            folder = self.pod_folder(pod.metadata.uid) / _around(EMPTY) / checked_name(volume.name, "volume")
            try:
                if used_bytes(folder, limit) > limit:
                    return eviction_text(volume.name, volume.empty_dir)
            except TooDeep as error:
                return f'Usage of EmptyDir volume "{volume.name}" cannot be measured: {error}. '
            except OSError as error:
                _log.debug("pod %s: volume %s is not measured: %s", pod.key, volume.name, error)
        return ""

    async def _of_claim(self, pod: RunnablePod, volume: RunnableVolume) -> Path:
        key = (pod.metadata.uid, volume.name)
        if key not in self._claimed:
            source = volume.persistent_volume_claim
            name = source.claim_name if source is not None else f"{pod.metadata.name}-{volume.name}"
            found = await self._objects.volume(pod, name, is_ephemeral=source is None)
            self._claimed[key] = await asyncio.to_thread(self._folder_of, pod, found)
        return self._claimed[key]

    def _folder_of(self, pod: RunnablePod, volume: Mapping[str, Any]) -> Path:
        """The directory of a volume. One that was provisioned for its claim belongs to the containers' user."""
        spec = volume["spec"]
        if spec.get("volumeMode") == "Block":
            raise Missing("the agent has no block devices")
        if spec.get("local"):
            path = self._host_path(pod, HostPathVolumeSource(path=spec["local"]["path"], type="Directory"))
            if not path.is_dir():
                raise Missing(f'path "{path}" does not exist')
            return path
        source = spec.get("hostPath")
        if not source:
            raise Missing("the agent has no plugin for this kind of volume")
        path = self._host_path(pod, HostPathVolumeSource(path=source["path"], type=source.get("type") or ""))
        if (volume["metadata"].get("annotations") or {}).get(PROVISIONED_BY) and not any(path.iterdir()):
            path.chmod(0o777)
        return path

    def _host_path(self, pod: RunnablePod, source: HostPathVolumeSource) -> Path:  # noqa: ARG002 - nodes with their own disks need it
        """A path of the node, checked or created as its type requires."""
        return host_path(Path(source.path), source.type)

    async def _files(self, pod: RunnablePod, volume: RunnableVolume, facts: PodFacts) -> tuple[str, Files | None]:
        if volume.empty_dir is not None:
            return EMPTY, None
        if volume.image is not None:
            raise Missing("this runtime does not pull images: image volumes need --runtime cri")
        if volume.config_map is not None:
            return "configmap", await self._config_map(pod, volume.config_map, volume.config_map.default_mode)
        if volume.secret is not None:
            return "secret", await self._secret(pod, volume.secret, volume.secret.default_mode)
        if volume.downward_api is not None:
            return "downward-api", _downward(pod, volume.downward_api, volume.downward_api.default_mode, facts)
        if volume.projected is not None:
            mode = volume.projected.default_mode
            parts = await asyncio.gather(
                *(
                    self._projection(pod, volume, position, source, mode, facts)
                    for position, source in enumerate(volume.projected.sources)
                )
            )
            return "projected", {name: file for part in parts for name, file in part.items()}
        raise Missing("the agent has no plugin for this kind of volume")

    async def _projection(
        self,
        pod: RunnablePod,
        volume: RunnableVolume,
        position: int,
        source: VolumeProjection,
        mode: int | None,
        facts: PodFacts,
    ) -> Files:
        if source.config_map is not None:
            return await self._config_map(pod, source.config_map, mode)
        if source.secret is not None:
            return await self._secret(pod, source.secret, mode)
        if source.downward_api is not None:
            return _downward(pod, source.downward_api, mode, facts)
        if source.service_account_token is not None:
            return await self._token(pod, volume, source.service_account_token, mode)
        if source.cluster_trust_bundle is not None:
            return await self._trust_bundle(source.cluster_trust_bundle, mode)
        if source.pod_certificate is not None:
            return await self._certificate(pod, volume, position, source.pod_certificate, mode)
        raise Missing("the agent does not know this source of a projected volume")

    async def _trust_bundle(self, source: ClusterTrustBundleProjection, mode: int | None) -> Files:
        bundles = await self._objects.trust_bundles(source)
        if not bundles and not source.optional:
            if source.name is not None:
                raise Missing(f'clustertrustbundle "{source.name}" not found')
            raise Missing("combination of signerName and labelSelector matched zero ClusterTrustBundles")
        return {source.path: _File(trust_anchors(bundles).encode(), _MODE if mode is None else mode)}

    async def _certificate(
        self,
        pod: RunnablePod,
        volume: RunnableVolume,
        position: int,
        source: PodCertificateProjection,
        mode: int | None,
    ) -> Files:
        if self._certificates is None:
            raise Missing("the agent asks for no certificates")
        found = await self._certificates.of(pod, volume.name, position, source)
        usual = _MODE if mode is None else mode
        files = {
            source.credential_bundle_path: found.key + found.chain,
            source.key_path: found.key,
            source.certificate_chain_path: found.chain,
        }
        return {path: _private_file(pod, data, usual) for path, data in files.items() if path}

    async def _config_map(self, pod: RunnablePod, source: ConfigMapVolumeSource, mode: int | None) -> Files:
        data = await self._objects.config_map(pod.metadata.namespace, source.name)
        if data is None:
            if source.optional:
                return {}
            raise Missing(f'configmap "{source.name}" not found')
        return _chosen(data, source.items, mode, source.optional, "configmap")

    async def _secret(self, pod: RunnablePod, source: SecretVolumeSource, mode: int | None) -> Files:
        name = source.secret_name or source.name
        data = await self._objects.secret(pod.metadata.namespace, name)
        if data is None:
            if source.optional:
                return {}
            raise Missing(f'secret "{name}" not found')
        return _chosen(data, source.items, mode, source.optional, "secret")

    async def _token(
        self, pod: RunnablePod, volume: RunnableVolume, source: ServiceAccountTokenProjection, mode: int | None
    ) -> Files:
        key = (pod.metadata.uid, volume.name, source.path)
        now = self._clock.seconds()
        due, text = self._tokens.get(key, (0.0, b""))
        if now >= due:
            token = await self._objects.token(pod, source.audience, source.expiration_seconds)
            # Like the kubelet: renew after four fifths of its lifetime, at the latest after a day.
            due = now + min(0.8 * (token.expires_at - now), 24 * 3600.0)
            text = token.text.encode()
            self._tokens[key] = (due, text)
        return {source.path: _private_file(pod, text, _MODE if mode is None else mode)}


def _around(kind: str) -> str:
    return f"volumes/kubernetes.io~{kind}"


def _private_file(pod: RunnablePod, text: bytes, mode: int) -> _File:
    """A secret file: only for the pod's user and group, if it has them."""
    user = fs_user(pod)
    has_group = pod.spec.security_context is not None and pod.spec.security_context.fs_group is not None
    if user is None and not has_group:
        return _File(text, mode)
    return _File(text, _PRIVATE_MODE, user if user != os.geteuid() and os.geteuid() == 0 else None)


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


def _downward(pod: RunnablePod, source: DownwardAPIVolumeSource, mode: int | None, facts: PodFacts) -> Files:
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


def host_path(path: Path, type_: str) -> Path:
    """A path that exists afterwards; Missing if it fails its type check."""
    if type_ == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif type_ == "FileOrCreate":
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
    check = checks.get(type_)
    if check is not None and not check():
        kind = type_.removesuffix("OrCreate").lower()
        raise Missing(f"hostPath type check failed: {path} is not a {kind}")
    if check is None and not path.exists():
        # As container runtimes do if the source of a mount is missing.
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    return path


def is_read_only(volume: RunnableVolume) -> bool:
    """Whether a volume is read-only for containers, whatever they request: the agent writes it, or the pod says so."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.read_only
    sources = (volume.config_map, volume.secret, volume.downward_api, volume.projected, volume.image)
    return any(each is not None for each in sources)


def _make_filled(around: int, name: str, group: int | None, files: Files) -> None:
    """Create a folder with these files, which only the agent can change."""
    for path in files:
        parts = PurePosixPath(path).parts
        if not parts or parts[0] == "/" or parts[0].startswith("..") or ".." in parts:
            raise Missing(f"invalid path: {path}")
    if group is not None:
        files = {path: msgspec.structs.replace(file, mode=file.mode | _GROUP_READS) for path, file in files.items()}
    mode = 0o755 if group is None else 0o755 | _GROUP_PASSES
    folder = open_folder(around, name, make_mode=0o755)
    try:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or group not in (None, found.st_gid):
            os.fchown(folder, os.geteuid(), -1 if group is None else group)
        # Earlier agents let everyone write here.
        if stat.S_IMODE(found.st_mode) != mode:
            os.fchmod(folder, mode)
        if _present(folder) != files:
            _write(folder, files, group)
    finally:
        os.close(folder)


def _write(folder: int, files: Files, group: int | None) -> None:
    fresh = f"..{os.urandom(6).hex()}"
    os.mkdir(fresh, 0o755, dir_fd=folder)
    _fill(folder, fresh, files, group)
    temporary = f"{_LINK}_tmp"
    remove_entry(folder, temporary)
    os.symlink(fresh, temporary, dir_fd=folder)
    if not _points(folder, _LINK):
        remove_entry(folder, _LINK)
    os.replace(temporary, _LINK, src_dir_fd=folder, dst_dir_fd=folder)
    tops = {PurePosixPath(path).parts[0] for path in files}
    for name in sorted(tops):
        target = f"{_LINK}/{name}"
        if _points(folder, name) != target:
            remove_entry(folder, name)
            os.symlink(target, name, dir_fd=folder)
    for name in os.listdir(folder):
        if name not in tops and name not in (fresh, _LINK):
            remove_entry(folder, name)


def _fill(folder: int, name: str, files: Files, group: int | None) -> None:
    top = os.open(name, FOLDER, dir_fd=folder)
    try:
        for path, file in files.items():
            around, _, last = str(PurePosixPath(path)).rpartition("/")
            handle = open_folder(top, around, make_mode=0o755)
            try:
                write_file(handle, last, file.data, file.mode, group, file.user)
            finally:
                os.close(handle)
        if group is not None:
            for _, _, _, handle in os.fwalk(".", dir_fd=top):
                os.fchown(handle, -1, group)
                os.fchmod(handle, 0o755 | _GROUP_PASSES)
    finally:
        os.close(top)


def _points(folder: int, name: str) -> str:
    """The target of a link; empty if it is not a link."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return ""


def _present(folder: int) -> Files | None:
    """The files in the folder, if the agent wrote them."""
    found: Files = {}
    try:
        top = os.open(_points(folder, _LINK) or ".", FOLDER, dir_fd=folder)
    except OSError:
        return None
    try:
        status = os.fstat(top)
        if os.path.samestat(status, os.fstat(folder)) or status.st_uid != os.geteuid():
            return None
        for around, _, names, handle in os.fwalk(".", dir_fd=top):
            for name in names:
                have = os.stat(name, dir_fd=handle, follow_symlinks=False)
                path = str(PurePosixPath(around) / name)
                user = have.st_uid if have.st_uid != os.geteuid() else None
                found[path] = _File(read_file(name, _FILE_BYTES_MAX, handle), stat.S_IMODE(have.st_mode), user)
    except OSError:
        return None
    finally:
        os.close(top)
    return found
