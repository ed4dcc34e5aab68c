"""`python -m allot.devices.file`."""

from allot.devices.file.command import main

if __name__ == "__main__":
    main()
