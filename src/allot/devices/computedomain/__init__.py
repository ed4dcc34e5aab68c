"""The driver `compute-domain.nvidia.com`: IMEX channels and daemons of ComputeDomains; device classes and parameters as NVIDIA's.

Knows ComputeDomains in the API and simulated NVLink fabrics. Written with the public SDK `allot.driver`; does not know who creates
the daemons (`core.workloads.compute_domain`), the scheduler or how a container is started.

    config, classes    pure: what parameters mean, what is published
    domains            domains and the node's labels in the API
    imex               what containers see: channels, the daemon's directory and programs
    driver             combines these
"""
