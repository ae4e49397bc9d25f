"""Each kind's settings, beside the kind."""
