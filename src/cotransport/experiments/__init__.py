"""Recipes, streams and runs."""
