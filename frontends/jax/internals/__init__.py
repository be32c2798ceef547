"""What is used of JAX and jaxlib that is not public, and the versions that it is known to be of."""
