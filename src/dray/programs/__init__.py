"""Starts programs of this machine, and builds dray's own program for the clusters."""
