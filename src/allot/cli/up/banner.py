"""The message of `allot up` when a cluster is ready: its address, how to use it, what to try."""

from __future__ import annotations

import shlex
from pathlib import Path

from allot.cli.data_dir import default_data_dir
from allot.cli.output import talk
from allot.cli.up.instance import InstanceState


def announce(state: InstanceState, *, background: Path | None) -> None:
    """On stderr, like all messages. background: the data directory of a cluster in the background."""
    talk(f"ready: {state.url}")
    if state.commands:
        talk(f"commands of pods: {state.commands}")
    if state.network:
        talk(f"network of pods: {state.network}")
    if state.dashboard_link:
        talk(f"dashboard: {state.dashboard_link}")
    talk("")
    if state.merged_into:
        talk(f"  kubectl config use-context allot          {state.merged_into} has it")
    else:
        talk(f"  export KUBECONFIG={shlex.quote(state.kubeconfig)}")
    talk("  kubectl get nodes,resourceslices")
    talk("  allot demo                      what dynamic resource allocation does, step by step")
    talk("  allot explain pod/NAME          why a pod is pending, or why it is where it is")
    if background is not None:
        option = "" if background == default_data_dir() else f" --data-dir {shlex.quote(str(background))}"
        talk("")
        talk(f"log: {state.log}")
        talk(f"allot status{option} shows its state, allot down{option} stops it")
    talk("")
