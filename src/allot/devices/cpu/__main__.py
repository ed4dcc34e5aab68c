"""`python -m allot.devices.cpu`."""

from allot.devices.cpu.command import main

if __name__ == "__main__":
    main()
