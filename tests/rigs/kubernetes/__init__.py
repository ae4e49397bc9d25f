"""A real Kubernetes on this machine: a control plane, and nodes that run real containers."""
