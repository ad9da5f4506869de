"""`step()`: schedule, execute, update; the only place where deciding and doing meet."""
