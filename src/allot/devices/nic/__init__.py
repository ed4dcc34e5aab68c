"""The network driver `dra.net`: interfaces of a machine besides the one that the node itself uses, with bandwidth and RDMA.

Knows network interfaces, real ones from the kernel and simulated ones from `allot.devices.profiles`. Written with the public SDK
`allot.driver`; does not know the node agent, the scheduler or the cluster's own network.

    interfaces   interfaces from the kernel or from a machine profile
    config       pure: the parameters of claims
    inventory    pure: what is published, what containers get, what a claim's status says
    driver       combines these
"""
