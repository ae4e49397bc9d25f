"""Several commands as one job's command, in one allocation (``share`` and ``together`` of a batch).

``runner`` is the program; what each of the commands gets of the job is in ``processes.dividing``.
"""
