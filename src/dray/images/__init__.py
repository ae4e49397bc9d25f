"""Container images: built on this machine, and sent to clusters layer by layer."""
