"""PAC-ML: an agent that learns into how many pieces to split each job on RAMP (Parsonson et al.,
2023)."""
