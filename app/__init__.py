"""Katagami: app."""
