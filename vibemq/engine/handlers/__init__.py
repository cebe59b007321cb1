"""What each command does, one module for each noun. Handlers check first and change last."""
