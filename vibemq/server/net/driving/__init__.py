"""What a peer has asked for and what is under way for it."""
