"""A copy of the running Python, for places that have none: the image of a job may be anybody's.

``elf`` reads programs and libraries, ``survey`` is run by a Python to tell what it consists of,
``plan`` decides what the copy holds and how it is named, and ``tree`` makes it.
``formats.interpreters`` tells how it is started.
"""
