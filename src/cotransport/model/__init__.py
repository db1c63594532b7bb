"""The model folder: versions of a classifier on disk."""
