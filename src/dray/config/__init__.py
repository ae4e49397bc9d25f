"""Settings: the files they come from, who is trusted with what, and how they are edited."""
