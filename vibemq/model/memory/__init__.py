"""Where large rows gather."""
