"""Networks as links that are shared by flows: topologies, routes, max-min rates, and policies that
place jobs by topology."""
