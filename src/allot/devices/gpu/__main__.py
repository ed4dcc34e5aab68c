"""`python -m allot.devices.gpu`."""

from allot.devices.gpu.command import main

if __name__ == "__main__":
    main()
