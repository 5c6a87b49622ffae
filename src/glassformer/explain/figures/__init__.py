"""Figures: matrices as SVG or with matplotlib, and the figures of an example."""
