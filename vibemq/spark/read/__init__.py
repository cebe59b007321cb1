"""Reading: batches, streams, and the columns that they give."""
