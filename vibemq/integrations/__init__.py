"""VibeMQ in the frameworks that its users use: one folder for each, which nothing else of VibeMQ imports."""
