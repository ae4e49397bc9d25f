"""Kubernetes objects: what dray creates, and what it reads of those that are there. Pure."""
