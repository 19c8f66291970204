"""Front end."""
