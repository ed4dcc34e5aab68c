"""What `allot up` says when a cluster is ready: where it is, how to use it, what to try."""

from __future__ import annotations

import shlex

from allot.cli.instance import InstanceState
from allot.cli.output import talk


def announce(state: InstanceState, *, in_background: bool) -> None:
    """On stderr, as all talk."""
    talk(f"ready: {state.url}")
    talk("")
    if state.merged_into:
        talk(f"  kubectl config use-context allot          {state.merged_into} has it")
    else:
        talk(f"  export KUBECONFIG={shlex.quote(state.kubeconfig)}")
    talk("  kubectl get nodes,resourceslices")
    talk("  allot demo                      what dynamic resource allocation does, step by step")
    talk("  allot explain pod/NAME          why a pod is pending, or why it is where it is")
    if in_background:
        talk("")
        talk(f"log: {state.log}")
        talk("allot status tells how it is, allot down stops it")
    talk("")
