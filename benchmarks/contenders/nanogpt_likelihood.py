"""Print the likelihood of a text under a nanoGPT checkpoint as JSON: CHECKOUT CHECKPOINT TEXT_OF_UINT16.

Every id except the first is predicted once, from a window that slides by half its length.
"""

import json
import sys

import numpy as np
import torch

from glassformer.metrics.likelihood import sliding_likelihood


def main() -> None:
    checkout, checkpoint, text = sys.argv[1:]
    sys.path.insert(0, checkout)
    from model import GPT, GPTConfig

    stored = torch.load(checkpoint, map_location="cpu", weights_only=True)
    model = GPT(GPTConfig(**stored["model_args"])).eval()
    model.load_state_dict(stored["model"])
    context = stored["model_args"]["block_size"]

    def logits(ids: torch.Tensor) -> torch.Tensor:
        ids = ids.contiguous()  # nanoGPT's loss needs it
        return model(ids, ids)[0]  # with targets, it returns logits for every position

    likelihood = sliding_likelihood(logits, np.fromfile(text, np.uint16), context, context // 2)
    print(json.dumps({"nll": likelihood.nll, "characters": likelihood.tokens}))


if __name__ == "__main__":
    main()
