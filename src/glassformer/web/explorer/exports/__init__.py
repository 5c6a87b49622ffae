"""Files of the panels: pictures, tables, tensors, formulas, and the Python lines that give their numbers."""
