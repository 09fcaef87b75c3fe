"""The graph IR and its passes."""
