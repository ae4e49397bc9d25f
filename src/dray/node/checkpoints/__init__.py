"""A job's checkpoints: finding the newest whole one, and going on from it."""
