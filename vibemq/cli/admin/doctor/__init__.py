"""`vibemq-admin doctor`: checks of this machine and a broker, with a remedy for each problem."""
