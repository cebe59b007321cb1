"""From an outcome to the disk and back: group commit, and who is told what in which order."""
