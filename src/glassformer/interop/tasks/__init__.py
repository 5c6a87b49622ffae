"""Task-specific parts of a conversion: class of transformers, inputs to compare, files beside the weights."""
