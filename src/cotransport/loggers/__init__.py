"""Training logs by name: as CSV, for TensorBoard, Weights & Biases and MLflow."""

from cotransport.loggers.training_log import loggers_for

__all__ = ["loggers_for"]
