"""Clusters behind a login node, whatever batch system they have."""
