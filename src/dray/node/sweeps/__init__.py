"""Sweeps: what a trial does on its node: it asks for its parameters, and tells how it does."""
