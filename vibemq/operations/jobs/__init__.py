"""Jobs on dead letters: start, look at and change them. They are carried out in `vibemq.server.jobs`."""
