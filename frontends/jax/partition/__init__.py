"""XLA's SPMD partitioner at the mesh's real size, in a child process."""
