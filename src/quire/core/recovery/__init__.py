"""Whom to preempt, and by which mode the victim comes back."""
