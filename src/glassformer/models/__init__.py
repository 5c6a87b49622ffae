"""Each file: a configuration, its assembly from ``layers``, its head. A diff of two is the difference of two papers."""
