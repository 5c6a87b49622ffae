// Steps of decoding (decode.cpp).
#pragma once
#include "arguments.h"

struct StackCall : PackedStack {
    int64_t threads;
    RotaryTables rotary;
};

// Store the keys and values of the newest tokens in the cache, and compute the logits after them.
void decode_tokens(const StackCall& stack, const Linear& output, const NewestTokens& newest, const DecoderCache& cache);
