"""The loop that a PyTorch model is trained in where it brings none of its own."""

import argparse
from collections.abc import Callable

import torch
from device import measure_on
from timing import BETAS, EPSILON, PAD, RATE, SMOOTHING, forever
from torch import Tensor, nn


def train_plainly(options: argparse.Namespace, model: nn.Module, logits_of: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Adam and label-smoothed cross-entropy; ``logits_of`` source and of what the decoder reads of the target."""
    adam = torch.optim.Adam(model.parameters(), RATE, BETAS, EPSILON, fused=True)
    loss_of = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=SMOOTHING)

    def step(batch: tuple) -> tuple[int, int]:
        source, target = (torch.from_numpy(side).to(options.device) for side in batch)
        with torch.autocast(options.device, torch.bfloat16, enabled=options.precision == "bfloat16"):
            loss = loss_of(logits_of(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        return int((batch[0] != PAD).sum()), int((batch[1][:, 1:] != PAD).sum())

    measure_on(options.device, step, forever(options.batches), options.seconds)
