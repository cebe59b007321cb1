"""Parts of the assembly that are long, and have no order that matters."""
