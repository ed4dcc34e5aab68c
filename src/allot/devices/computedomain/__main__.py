"""`python -m allot.devices.computedomain`."""

from allot.devices.computedomain.command import main

if __name__ == "__main__":
    main()
