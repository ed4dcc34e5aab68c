"""The AMD GPU driver `gpu.amd.com`: whole cards and their partitions, with AMD's attributes.

Knows AMD's cards, real ones from the kernel (sysfs and KFD) and simulated ones from `allot.devices.profiles`. Written with
the public SDK `allot.driver`. Does not change how a card is partitioned: the administrator does that.

    hardware    cards from the kernel or from a machine profile
    inventory   pure: what is published, what containers get
    driver      combines these
"""
