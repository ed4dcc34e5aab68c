"""The Intel GPU driver `gpu.intel.com`: cards and their virtual functions, with Intel's attributes and classes.

Knows Intel's GPUs, real ones from the kernel (sysfs and DRM) and simulated ones from `allot.devices.profiles`. Written with the public SDK
`allot.driver`. Neither creates virtual functions nor binds kernel drivers: the administrator does that.

    hardware    GPUs from the kernel or from a machine profile
    memory      the memory of a GPU, from the kernel's graphics drivers
    inventory   pure: what is published
    driver      combines these
"""
