"""Stores of other brokers, read once and written as records of ours."""
