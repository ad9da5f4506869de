"""The scheduler on a virtual clock: what a machine would do, without the machine."""
