#!/bin/sh
# What `make demo` runs: a small cluster, claims that fit, one that does not, and a selector tried on every device.
set -eu
cd "$(dirname "$0")/.."

show() {
    printf '\n$ %s\n' "$*"
    status=0
    "$@" || status=$?
    # 1 is an answer: "does not fit". Anything above is a failure of the demo.
    [ "$status" -le 1 ] || exit "$status"
}

show allot validate examples
show allot allocate examples/cluster examples/claims
show allot allocate examples/cluster examples/does-not-fit.yaml
show allot cel 'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0' -f examples/cluster/gpus.yaml
