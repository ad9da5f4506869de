"""Other engines on the same workloads, in turns with ours."""
