"""Tests of the loop IR; ``programs`` has what they run on."""
