"""The runtime: buffers, executor, threads and module files."""
