"""Networks whose links are shared by flows: topologies, routes, max-min fair rates, and policies
that place jobs according to the topology."""
