"""The agent, which answers the laptop on a login node."""
