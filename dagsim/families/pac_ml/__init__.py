"""PAC-ML, which learns into how many pieces to split each job on RAMP (Parsonson et al., 2023)."""
