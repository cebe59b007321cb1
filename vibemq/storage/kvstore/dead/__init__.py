"""Dead letters by what they have in common, and in pages."""
