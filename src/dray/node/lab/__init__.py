"""Jupyter as a job's command.

server      starts Jupyter where only its user can reach it, and ends it when it is idle
jupyter     what Jupyter says of its kernels and terminals, over its socket
notes       where it says how it is reached
"""
