"""Several commands as one job's command, in one allocation (``share`` and ``together`` of a batch).

``runner`` is the program, ``dividing`` what each of the commands gets of the job.
"""
