"""Networks as links that flows share: topologies, routes, max-min rates, and policies that place by them."""
