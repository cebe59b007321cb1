"""Carries out the jobs that the engine keeps: reads dead letters, and asks the engine for one bounded step after the
other."""
