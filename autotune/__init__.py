"""The autotuner will live here: search, cost model, measurement and records."""
