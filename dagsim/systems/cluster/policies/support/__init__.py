"""Code that several policies share."""
