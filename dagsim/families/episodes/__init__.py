"""Episodes of the GPU cluster in compiled code, and the policy that searches with them."""
