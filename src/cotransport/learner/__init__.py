"""The classifier that keeps learning."""
