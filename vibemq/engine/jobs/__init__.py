"""What the engine keeps of jobs."""
