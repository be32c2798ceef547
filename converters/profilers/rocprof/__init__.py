"""Exports of Nsight Systems (SQLite) as observed ops."""
