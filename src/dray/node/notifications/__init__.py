"""Messages to people about a job: written, sent, and sent only once."""
