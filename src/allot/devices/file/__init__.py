"""A driver without code: a YAML file defines the devices, what containers get with them, and their parameters.

Knows the form of such files. Written with `allot.driver` as an outside author would; does not know any hardware: a device
exists if its device files do.

    definition  the format of the file, and its errors
    expansion   pure: the devices of an entry, by number
    driver      publishes and prepares them
"""
