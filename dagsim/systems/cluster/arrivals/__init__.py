"""The jobs of a simulation: where they come from, what they depend on, and when they become eligible."""
