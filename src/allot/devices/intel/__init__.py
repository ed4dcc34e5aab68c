"""The Intel GPU driver `gpu.intel.com`: cards and their virtual functions, with Intel's own attributes and classes.

Knows Intel's GPUs, real ones from the kernel (sysfs and DRM) and simulated ones from `allot.devices.profiles`. Written with `allot.driver`
as an outside author would. Neither makes virtual functions nor binds kernel drivers: those are the administrator's.

    hardware    what the kernel says of the GPUs, and those of a machine profile
    memory      how much memory a GPU has, asked of the kernel's graphics drivers
    inventory   pure: what is published
    driver      puts it together
"""
