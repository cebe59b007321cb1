"""The console from the command line."""
