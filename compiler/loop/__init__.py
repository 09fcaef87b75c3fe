"""Tensor expressions, the loop IR and its passes."""
