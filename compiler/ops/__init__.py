"""The operators: one class each, with shape rule, meaning, reference and documentation."""
