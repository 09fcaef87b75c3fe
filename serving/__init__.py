"""The inference service will live here: model adapter, batching, admission and metrics."""
