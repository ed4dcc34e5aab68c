"""Which settings of the kernel pods may have."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.pod_sysctls import (
    SysctlRules,
    UnknownNamespace,
    allow_unsafe,
    forbidden_sysctl,
    sysctls_of,
)
from allot.core.model.pods_v1 import RunnablePod, decode_runnable


def pod(*names: str, **spec: Any) -> RunnablePod:
    context = {"sysctls": [{"name": each, "value": "1"} for each in names]}
    return decode_runnable({"metadata": {"name": "p"}, "spec": {"securityContext": context, **spec}})


@pytest.mark.parametrize(
    ("name", "allowed", "expected"),
    [
        ("kernel.shm_rmid_forced", "", ""),
        ("net/ipv4/tcp_syncookies", "", ""),
        ("kernel.msgmax", "", 'forbidden sysctl: "kernel.msgmax" not allowlisted'),
        ("kernel.msgmax", "kernel.msg*", ""),
        ("kernel.msgmax", "kernel/msgmax", ""),
        ("kernel.msgmaxx", "kernel.msgmax", 'forbidden sysctl: "kernel.msgmaxx" not allowlisted'),
        ("kernel.core_pattern", "net.*", 'forbidden sysctl: "kernel.core_pattern" not allowlisted'),
        # A name that would lead out of what was allowed.
        ("net.//.//.kernel.core_pattern", "net.*", 'forbidden sysctl: "net.//.//.kernel.core_pattern" not allowlisted'),
        ("net.core.somaxconn", "net.*", ""),
    ],
)
def test_a_pod_gets_safe_settings_and_those_that_the_node_allows(name: str, allowed: str, expected: str) -> None:
    assert forbidden_sysctl(pod(name), allow_unsafe(filter(None, allowed.split(",")))) == expected


def test_a_namespace_that_is_the_machines_own_is_not_changed() -> None:
    safe = SysctlRules()
    assert forbidden_sysctl(pod("net.ipv4.tcp_rmem", hostNetwork=True), safe) == (
        'forbidden sysctl: "net.ipv4.tcp_rmem" not allowed with host net enabled'
    )
    assert forbidden_sysctl(pod("kernel.shm_rmid_forced", hostIPC=True), safe) == (
        'forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host ipc enabled'
    )
    assert forbidden_sysctl(pod("kernel.shm_rmid_forced", hostNetwork=True), safe) == ""


@pytest.mark.parametrize("pattern", ["vm.swappiness", "kernel.*", "*", "kernel.sem*", "n*"])
def test_only_settings_of_a_namespace_can_be_allowed(pattern: str) -> None:
    with pytest.raises(UnknownNamespace):
        allow_unsafe([pattern])


def test_names_have_dots() -> None:
    assert sysctls_of(pod("net/ipv4/conf/eth0.1/arp_notify", "kernel.shmall")) == {
        "net.ipv4.conf.eth0/1.arp_notify": "1",
        "kernel.shmall": "1",
    }
    assert sysctls_of(decode_runnable({"metadata": {"name": "p"}})) == {}
