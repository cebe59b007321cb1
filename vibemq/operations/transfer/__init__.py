"""Single messages and whole queues, taken out, copied, put back and moved by operators."""
