"""Measurements, as ratios taken in one run: ``make bench``."""
