"""`vibemq demo`: a year of flights through a broker that is killed on the way, and every one of them accounted for."""
