"""TensorBoard on this machine, fed with the event files of jobs as they grow."""
