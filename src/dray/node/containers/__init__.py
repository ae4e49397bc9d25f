"""Containers around a command, and the images that they start from."""
