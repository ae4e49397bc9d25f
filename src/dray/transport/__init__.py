"""How programs are started and files reach a cluster."""
