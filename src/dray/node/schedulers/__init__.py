"""Batch systems and the local queue: their commands, and how answers are read."""
