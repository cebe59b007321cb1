"""Operations that look at a running broker: its figures now and before, who uses it, and what should be mended."""
