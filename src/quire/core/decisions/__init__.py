"""What loading and computing cost: learnt from what was measured, asked before every decision."""
