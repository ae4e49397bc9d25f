"""A training's curve, read from reports, TensorBoard's files or the log."""
