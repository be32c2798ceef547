"""Kineto traces (PyTorch's profiler) as observed ops."""
