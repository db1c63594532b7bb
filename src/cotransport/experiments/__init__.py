"""Experiments: recipes, streams of tasks, runs and their results."""
