"""How cells are computed, kept and printed: what the commands share."""
