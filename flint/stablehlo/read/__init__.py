"""MLIR files into op records."""
