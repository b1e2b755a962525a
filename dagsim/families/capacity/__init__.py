"""Questions of cluster operators: other machines, other policies, how many machines are enough, and
their cost.
"""
