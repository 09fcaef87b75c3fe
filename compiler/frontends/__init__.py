"""Importers: what turns a model from elsewhere into a graph."""
