"""Benchmarks, which `make bench` runs."""
