"""What both sides read and write: state files, checked values, and the messages on the wire."""
