"""Rules of a real kernel, in a network namespace of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_TRIAL = Path(__file__).parent / "nftables_trial.py"


def why_not() -> str:
    """Why rules of the kernel cannot be tried here; empty if they can."""
    if os.geteuid() != 0:
        return "rules of the kernel need root"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        return f"no network namespace can be made here: {probe.stderr.decode().strip()}"
    script = "from allot.core.network.packet_rules import Ruleset; from allot.network.nftables import ServiceRules; ServiceRules('t').apply(Ruleset())"
    probe = subprocess.run(["unshare", "--net", sys.executable, "-c", script], capture_output=True, check=False)
    return "" if probe.returncode == 0 else f"the kernel takes no rules: {probe.stderr.decode().splitlines()[-1]}"


@pytest.mark.slow
def test_connections_to_services_reach_endpoints_and_nothing_is_left_afterwards() -> None:
    if reason := why_not():
        pytest.skip(reason)
    done = subprocess.run(
        ["unshare", "--net", sys.executable, _TRIAL], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "foreign": "",
        "before": ["OSError"],
        "chosen": ["8081", "8082"],
        "node port": ["8081", "8082"],
        "balancer": ["8081", "8082"],
        "other port": ["ConnectionRefusedError"],
        "kept": 1,
        "nobody": ["ConnectionRefusedError"],
        "node port gone": ["ConnectionRefusedError"],
        "one left": ["8081"],
        "of a thousand": ["8081", "8082"],
        "foreign then": "kube-proxy",
        "foreign after": "",
        "dropping": "",
        "dropping then": "chain FORWARD in table filter",
        "allowed": ["8081", "8082"],
        "kept out": ["TimeoutError"],
        "datagram": "8081",
        # The kernel sends what belongs to a flow where it sent before.
        "flow": "8081",
        "forgotten": 1,
        "forgotten again": 0,
        "flow anew": "8082",
        "forgotten at last": 1,
        "datagram to nobody": "PermissionError",
        "left": [],
    }
