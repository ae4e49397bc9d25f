"""Programs of this machine that dray starts, and its own program for the clusters."""
