"""A job as the user describes it: options, quantities and the frozen description."""
