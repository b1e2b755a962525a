"""A frozen benchmark of schedulers, and published figures of papers beside ours (docs/benchmark.md)."""
