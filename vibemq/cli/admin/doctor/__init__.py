"""`vibemq-admin doctor`: what could trouble a broker on this machine, and how to mend it."""
