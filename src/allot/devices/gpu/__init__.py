"""The GPU driver `gpu.nvidia.com`: whole GPUs, MIG instances, time-slicing, MPS; device classes and parameters as NVIDIA's.

Knows NVIDIA's GPUs, real ones through NVML and simulated ones from `allot.devices.profiles`. Written with the public SDK
`allot.driver`; does not know the node agent, the scheduler or how a container is started.

    inventory, faults, config, sharing, classes   pure: what is published, what parameters mean
    hardware                                      the port to the cards
    simulated, programs                           simulated cards, and what containers see of them
    nvml, nvml_hardware, mps                      cards of this machine
    driver                                        combines these
"""
