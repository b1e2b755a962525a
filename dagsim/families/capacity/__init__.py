"""Answer the questions of cluster operators: what other machines or policies would change, how many
machines are enough, and what they cost."""
