"""A frozen benchmark for schedulers, and comparisons of published values with dagsim's own
(docs/benchmark.md)."""
