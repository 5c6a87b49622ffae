"""Token shards: samples tokenized once into files of a fixed size, and streamed in an order computed from a seed."""
