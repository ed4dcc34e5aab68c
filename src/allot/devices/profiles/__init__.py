"""Hardware as data: GPU models with their MIG tables, and machine shapes with buses, NUMA nodes, network cards and processors.

Contains facts from data sheets and cloud documentation. Does not know drivers, Kubernetes, or how anything is simulated; the
drivers of `allot.devices` read from here what they show when there is no hardware.
"""
