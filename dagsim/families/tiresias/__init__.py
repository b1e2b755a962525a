"""Tiresias' own simulator, decision by decision (Gu et al., NSDI 2019)."""
