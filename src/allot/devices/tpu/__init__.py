"""The TPU driver `tpu.google.com`: all chips of a machine for one claim, with the environment that TPU programs read.

Knows Google's TPU chips, real ones from the kernel and simulated ones from `allot.devices.profiles`. Written with the public SDK
`allot.driver`; does not know the node agent, the scheduler or slices of several hosts beyond their topology.

    chips       chips from the kernel or from a machine profile
    topology    pure: grids of chips and hosts
    inventory   pure: what is published, what containers get
    driver      combines these
"""
