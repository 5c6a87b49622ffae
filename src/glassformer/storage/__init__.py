"""Files of a run on disk: checkpoints, run folders, and the checks before anything in them is read."""
