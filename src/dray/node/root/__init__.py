"""One root directory, and all that needs nothing else: in process here, through the agent there."""
