"""The scalar expression language: dimensions, index arithmetic and bodies of computations."""
