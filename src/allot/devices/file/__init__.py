"""A driver without code: a YAML file says which devices there are, what containers get with them and which parameters they take.

Knows the form of such files. Written with `allot.driver` as an outside author would; does not know any hardware: whether a device is
there is told by its device files.

    definition  what a file may say, and what is wrong with one
    expansion   pure: the devices of an entry, by number
    driver      publishes and prepares them
"""
