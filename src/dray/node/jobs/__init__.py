"""A job's directory: its files, its array, and what is decided from them."""
