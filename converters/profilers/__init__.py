"""Post-execution traces of profilers, read into observed ops."""
