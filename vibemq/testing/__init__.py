"""Tools for tests of VibeMQ and of programs that use it: clocks, a simulated disk, conformance suites."""
