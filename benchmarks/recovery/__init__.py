"""Recovery policies on the real engine: the experiment of the CPS paper."""
