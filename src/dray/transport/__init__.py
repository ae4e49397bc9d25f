"""How requests and files reach a cluster."""
