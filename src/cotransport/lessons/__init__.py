"""A model in use: lessons, evaluation, rollback."""
