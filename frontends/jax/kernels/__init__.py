"""The arithmetic of a kernel that is written in JAX, counted from its equations over its grid."""
