"""The scheduling policies of Tiresias' own simulator, reproduced decision by decision (Gu et al., NSDI 2019)."""
