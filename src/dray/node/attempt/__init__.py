"""One attempt of a job and the loop around it, on the node where the command runs."""
