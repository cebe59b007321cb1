"""When an outcome could not be written: what is taken back, what is owed, and how it is answered."""
