"""Codecs: from a view to arrays that a network reads, and from its choice back to a decision."""
