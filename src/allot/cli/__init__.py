"""The `allot` command: reads manifests, calls the core, prints answers.

This is the composition root, the only package that may import everything below it. It decides what to read
and how to show it; `allot.core` answers every question about devices.

Data goes to stdout, messages to stderr. Exit codes: 0 done, 1 refused (does not fit, is not valid), 2 wrong usage or
unreadable input.
"""

import os

# gRPC's handlers around fork end one in seven programs that the event loop (uvloop) starts with signal 11 (grpcio 1.85): seen in
# `kubectl exec` on a node. A child here always becomes another program at once and needs none of them. gRPC reads this when it
# is imported, hence here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
