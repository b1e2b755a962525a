"""Episodes on the GPU cluster in compiled code, and the policy that uses them for its search."""
