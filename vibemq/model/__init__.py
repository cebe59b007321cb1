"""The data types that all rooms share, and arithmetic on runs and rows. Imports only `vibemq.errors`."""
