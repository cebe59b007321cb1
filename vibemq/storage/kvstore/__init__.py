"""What providers over an ordered key-value store share: keys, values, blocks, checks and repair."""
