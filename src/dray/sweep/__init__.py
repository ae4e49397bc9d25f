"""Sweeps: what is varied, how trials turned out, where both come from and go to."""
