"""`python -m allot.devices.amd`."""

from allot.devices.amd.command import main

if __name__ == "__main__":
    main()
