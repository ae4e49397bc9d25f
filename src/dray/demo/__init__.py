"""A small training to try dray with, and the means to draw its learning curve."""
