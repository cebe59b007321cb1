"""Who a peer is, what it may do, and what becomes of it when that changes."""
