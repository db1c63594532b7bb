"""A model in use: lessons, evaluation on held-out images, promotion of versions and rollback."""
