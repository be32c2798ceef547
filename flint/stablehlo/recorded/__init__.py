"""Modules with an issue order: a framework's recording or a backend's schedule."""
