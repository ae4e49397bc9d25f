"""One module per kind of cluster, all of the same shape."""
