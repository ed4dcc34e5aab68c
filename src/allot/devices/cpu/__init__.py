"""The CPU driver `dra.cpu`: exclusive CPUs, by NUMA node, socket or machine, or one by one.

Knows sockets, NUMA nodes, cores and which CPUs a claim has. Written with the public SDK `allot.driver`; does not
know the node agent, the scheduler or how a container is started.

    topology    processors from the kernel or from a machine profile
    choice      pure: which CPUs a claim gets
    inventory   pure: what is published
    driver      combines these
"""
