"""Benchmarks of what runs, schedules, records and judges trials."""
