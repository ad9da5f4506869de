"""The parts of the scheduler."""
