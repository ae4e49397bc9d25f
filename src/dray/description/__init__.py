"""From settings, flags and a recipe to a job's full description, and back."""
