"""Systems: kinds of simulated worlds behind one seam."""
