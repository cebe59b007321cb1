"""Cursors: groups that are read by ranges and acknowledged up to a sequence (docs/spec/cursor.md).

requests    what an owner or an operator asks: join, commit, reject, quarantine
plans       how a reader cuts its batches
batches     which batch of which query a plan is
ranges      what a reader may know; the rows themselves come from storage
holds       holds that are over, groups that lag too far behind, what a restart finds
lookup      which cursor is meant, and whether it may be used
"""
