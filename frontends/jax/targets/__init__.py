"""What XLA's compile-only GPU and TPU compilers can compile for."""
