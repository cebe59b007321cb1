"""`python -m bench.alone`: VibeMQ by itself, in every respect that has a figure."""
