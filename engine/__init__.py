"""Katagami: engine."""
