"""JSON Schema in, token masks out."""
