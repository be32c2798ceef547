"""ASTRA-sim: the files beside the traces, the binary, its result."""
