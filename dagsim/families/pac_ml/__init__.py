"""PAC-ML: learning into how many pieces to partition jobs on RAMP (Parsonson et al., 2023)."""
