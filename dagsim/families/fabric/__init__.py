"""Networks of links that flows share: topologies, routes, max-min fair rates, and policies that
place jobs according to the topology."""
