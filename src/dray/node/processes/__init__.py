"""Starts the command, signals it, and ends everything below it."""
