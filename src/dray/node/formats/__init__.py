"""What both sides read and write: state files, checked values, the wire's messages."""
