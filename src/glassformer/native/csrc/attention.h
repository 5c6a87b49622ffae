// Equation 1 over full sequences (attention.cpp).
#pragma once
#include "arguments.h"

// Attention of all sequences, or its gradients. T: float, or uint16_t for bfloat16.
template <class T>
void attend_batches(const Attention& attention, bool backward);
