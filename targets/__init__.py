"""Targets: code generation, and the instructions that each machine offers."""
