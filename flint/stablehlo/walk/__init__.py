"""Shared by the handlers of all ops: state, scopes, opened blocks, what is known about values."""
