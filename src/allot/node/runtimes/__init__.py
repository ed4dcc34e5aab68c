"""Container runtimes behind one port (`port`): processes of this machine, a CRI runtime, or a simulation."""
