"""`python -m allot.devices.tpu`."""

from allot.devices.tpu.command import main

if __name__ == "__main__":
    main()
