"""Calibration: a device's curves from kernels that were timed on it."""
