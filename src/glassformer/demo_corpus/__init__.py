"""The corpus of the demonstration: a synchronous grammar of English and French with word alignments."""
