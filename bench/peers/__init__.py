"""`python -m bench.peers`: VibeMQ beside RabbitMQ, NATS, Redis, PostgreSQL and beanstalkd, at equal guarantees."""
