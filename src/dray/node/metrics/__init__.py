"""A training's curve, read from its reports, TensorBoard's files or the log."""
