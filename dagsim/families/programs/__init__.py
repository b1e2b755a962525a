"""Schedulers in other programs, connected through pipes or Batsim's protocol
(docs/reference/protocol.md).
"""
