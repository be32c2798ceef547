"""A cluster and a device that are not there."""
