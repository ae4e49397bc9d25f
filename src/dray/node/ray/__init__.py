"""What runs inside a Ray cluster: the driver of jobs, their nodes, and the way to the agent."""
