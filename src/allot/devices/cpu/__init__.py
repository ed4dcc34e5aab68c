"""The CPU driver `dra.cpu`: exclusive CPUs, by NUMA node, socket or machine, or one by one.

Knows sockets, NUMA nodes, cores and which CPUs a claim has. Written with `allot.driver` as an outside author would; does not
know the node agent, the scheduler or how a container is started.

    topology    what the kernel says of the processors, and the processors of a machine profile
    choice      pure: which CPUs a claim gets
    inventory   pure: what is published
    driver      puts it together
"""
