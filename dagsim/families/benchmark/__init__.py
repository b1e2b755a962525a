"""A frozen benchmark of schedulers, and published figures next to those of dagsim (docs/benchmark.md)."""
