"""Connections: sockets, the sessions behind them, and who is admitted."""
