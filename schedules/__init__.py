"""Schedules: moves on loop functions, and the spaces they span."""
