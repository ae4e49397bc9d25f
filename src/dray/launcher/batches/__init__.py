"""Batches: many jobs, each with its own command and settings, submitted together.

``grouping`` decides which jobs are submitted in one step, and in which order; ``together`` makes
one job of those that run together; ``submitting`` is the verb.
"""
