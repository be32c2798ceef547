"""PyTorch's execution traces as observed ops."""
