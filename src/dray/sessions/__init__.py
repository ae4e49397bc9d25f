"""The laptop's side of sessions: a program's standard files, a terminal, forwarded ports."""
