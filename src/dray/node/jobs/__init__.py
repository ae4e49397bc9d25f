"""A job's directory: its files, its array, and the decisions made from them."""
