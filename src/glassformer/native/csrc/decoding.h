// Steps of decoding (decode.cpp).
#pragma once
#include "arguments.h"

struct StackCall : PackedStack {
    int64_t threads;
    RotaryTables rotary;
};

// The newest token of each row, with its positional encoding: row stride `stride` (0: one for all), or null.
struct NewestTokens {
    const int64_t* ids;
    const float* position;
    int64_t stride, rows;
};

// Store the keys and values of the newest tokens in the cache, and compute the logits [rows, outputs] after them.
void decode_tokens(
    const StackCall& stack, const Linear& output, const NewestTokens& newest, const DecoderCache& cache, float* logits
);
