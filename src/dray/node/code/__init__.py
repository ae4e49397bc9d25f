"""A job's code: packs and snapshots below a root, and the work tree of an attempt."""
