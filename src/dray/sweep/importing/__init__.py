"""Sweeps that users already have, in other tools' files → a sweep's settings and parameters.

What has no counterpart is refused with its line, or told in a note; nothing is dropped in silence.
"""
