"""Reads what schedulers tell of their queues and limits. Pure, but for `machine`."""
