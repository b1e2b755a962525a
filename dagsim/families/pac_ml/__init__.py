"""PAC-ML: learning how far to partition jobs on RAMP (Parsonson et al., 2023)."""
