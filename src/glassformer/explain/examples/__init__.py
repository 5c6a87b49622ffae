"""Examples by kind of input: texts, images, series."""
