"""XLA's GPU and TPU compilers, in a child process and without a device."""
