"""Hardware as data: GPU models with their MIG tables, and machine shapes with buses, NUMA nodes, network cards and processors.

Knows what a data sheet or a cloud's documentation says. Does not know drivers, Kubernetes, or how anything is simulated; the
drivers of `allot.devices` read from here what they show when there is no hardware.
"""
