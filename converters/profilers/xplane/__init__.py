"""JAX profiles (xplane files) as observed ops."""
