"""`python -m allot.devices.imageconfigurator`."""

from allot.devices.imageconfigurator.command import main

if __name__ == "__main__":
    main()
