"""Analyses of a model over examples: attribution, interventions on heads, logit lens, attention rollout."""
