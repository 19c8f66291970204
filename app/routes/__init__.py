"""Routes: parse, call, answer."""
