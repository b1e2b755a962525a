"""Schedulers in other programs, over pipes or Batsim's protocol (docs/reference/protocol.md)."""
