"""The AMD GPU driver `gpu.amd.com`: whole cards and the partitions that they are cut into, with AMD's own attributes.

Knows AMD's cards, real ones from the kernel (sysfs and KFD) and simulated ones from `allot.devices.profiles`. Written with
`allot.driver` as an outside author would. Does not change how a card is partitioned: that is the administrator's.

    hardware    what the kernel says of the cards, and the cards of a machine profile
    inventory   pure: what is published, what containers get
    driver      puts it together
"""
