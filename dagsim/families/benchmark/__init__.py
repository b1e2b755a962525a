"""A frozen benchmark for schedulers, and published figures next to those of dagsim
(docs/benchmark.md)."""
