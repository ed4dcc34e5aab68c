# Which processors the container was given (DRA_CPUSET_... of the CPU driver), and whether they are near a device. Plain POSIX shell.

# As the program was started: some shells hide variables with dashes in their names.
variables() { tr '\0' '\n' <"/proc/$$/environ"; }
processors=$(variables | sed -n 's/^DRA_CPUSET_[^=]*=//p' | head -n 1)

# Whether the container's processors are among those of a list such as 0-55,112-167. Without any of its own it may run on all.
are_near() { # list of the device's processors
    [ -n "$processors" ] || return 0
    for part in $(echo "$processors" | tr ',' ' '); do
        is_near=''
        for range in $(echo "$1" | tr ',' ' '); do
            if [ "${part%-*}" -ge "${range%-*}" ] && [ "${part#*-}" -le "${range#*-}" ]; then is_near=1; fi
        done
        [ -n "$is_near" ] || return 1
    done
}
