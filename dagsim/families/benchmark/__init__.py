"""A frozen benchmark for schedulers, and comparisons of published figures with dagsim's own
(docs/benchmark.md)."""
