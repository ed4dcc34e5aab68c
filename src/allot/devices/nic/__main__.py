"""`python -m allot.devices.nic`."""

from allot.devices.nic.command import main

if __name__ == "__main__":
    main()
