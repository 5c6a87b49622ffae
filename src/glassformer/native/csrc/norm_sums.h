// Gradients of γ and β of a norm: each chunk of rows has its own sums, so that no bit depends on the threads.
#pragma once
#include "gemm.h"
#include "norm.h"

static float* sums_of_chunks(int64_t rows, int64_t d) {
    const int64_t count = (rows + CHUNK - 1) / CHUNK * 2 * d;
    auto sums = workspace<float>(NORM_SUMS, count);
    std::fill(sums, sums + count, 0.0f);
    return sums;
}

// The gradients, summed over the chunks.
template <class T>
static auto norm_gradient(
    const float* sums, int64_t rows, int64_t size, const Parameter& weight, const Parameter& bias
) {
    return loop(size, COLUMN_BLOCK, [=](int64_t from, int64_t end) {
        for (int64_t i = from; i < end; i += LANES) {
            Floats gamma = {}, beta = {};
            for (int64_t chunk = 0; chunk * CHUNK < rows; chunk++) {
                gamma += load(sums + chunk * 2 * size + i);
                beta += load(sums + chunk * 2 * size + size + i);
            }
            write(static_cast<T*>(weight.gradient) + i, gamma);
            if (bias.gradient) write(static_cast<T*>(bias.gradient) + i, beta);
        }
    });
}
