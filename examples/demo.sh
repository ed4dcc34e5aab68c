#!/bin/sh
# What `make demo` runs: a small cluster, claims that fit, one that does not, and a selector tried on every device.
set -eu
cd "$(dirname "$0")/.."

# show CODE COMMAND...: runs the command, which has to end with that exit code (1 is the answer "does not fit").
show() {
    expected=$1
    shift
    printf '\n$'
    for word in "$@"; do
        case $word in
        *[!A-Za-z0-9_./-]*) printf " '%s'" "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    status=0
    "$@" || status=$?
    [ "$status" -eq "$expected" ] || exit 70
}

show 0 allot validate examples
show 0 allot allocate examples/cluster examples/claims
show 1 allot allocate examples/cluster examples/does-not-fit.yaml
show 0 allot cel 'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0' -f examples/cluster/gpus.yaml
