"""Real clusters on this machine, started under a private folder and ports, and ended whole."""
