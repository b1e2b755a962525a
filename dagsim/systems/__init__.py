"""Systems: each a kind of world that can be simulated, behind one seam."""
