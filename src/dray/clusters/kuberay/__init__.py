"""Ray clusters on Kubernetes: found, started, looked at and ended by the user's own kubectl."""
