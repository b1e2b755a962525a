"""Questions of who runs a cluster: other machines, other policies, how many are enough, and what they cost."""
