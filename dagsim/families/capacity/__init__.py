"""Answers for cluster operators: other machines, other policies, how many machines are enough, and
what they cost."""
