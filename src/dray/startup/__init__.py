"""Runs at the start of every Python of a job, so that the job imports its own code.

Shipped in the node side's file, and found there by PYTHONPATH: see
``dray.node.processes.environment``.
"""
