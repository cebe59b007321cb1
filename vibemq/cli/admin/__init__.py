"""`vibemq-admin`: for those who operate a broker. Online verbs ask it by --url, offline verbs open a --data-dir."""
