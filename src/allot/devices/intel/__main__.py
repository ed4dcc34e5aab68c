"""`python -m allot.devices.intel`."""

from allot.devices.intel.command import main

if __name__ == "__main__":
    main()
