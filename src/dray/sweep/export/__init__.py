"""Sweeps for other tools: each module turns a study and its trials into what one of them reads.

All can be repeated while the sweep runs: what was written before is replaced or added to, never
doubled."""
