// C = A · B + b for training, in float32, of matrices of any size and strides, by all cores.
#pragma once
#include "gemm.h"

struct Product {
    int64_t rows, columns, depth;
    Operand a, b;
    const float* bias;  // one for each column, or null
    float* result;      // [rows, columns]
    int64_t threads;
};

// Some rows of the result, all columns; A is packed where its rows are not consecutive.
static void multiply_rows(const Product& p, const float* packed, int64_t first, int64_t count) {
    Operand a = {p.a.data + first * p.a.across, p.a.across, p.a.along};
    if (LANES == 8 && a.across == 1) {
        a = transposed(a.data, a.along, count, p.depth);
    } else if (a.along != 1) {
        auto own = workspace<float>(BLOCK_INPUT, p.depth * BLOCK);
        pack_strided(p.a, first, count, BLOCK, p.depth, own);
        a = {own, 1, BLOCK};
    }
    multiply_block(a, count, packed, p.columns, p.depth, [&](int64_t column, float* sums) {
        const int64_t width = std::min<int64_t>(PANEL, p.columns - column);
        float bias[PANEL] = {};
        if (p.bias) std::copy(p.bias + column, p.bias + column + width, bias);
        for (int64_t row = 0; row < count; row++) {
            float *values = sums + row * PANEL, *to = p.result + (first + row) * p.columns + column;
            for (int64_t j = 0; j < PANEL; j += LANES) {
                const Floats some = load(values + j) + load(bias + j);
                store(width == PANEL ? to + j : values + j, some);
            }
            if (width < PANEL) std::copy(values, values + width, to);
        }
    });
}

static void multiply(const Product& p) {
    auto packed = workspace<float>(WEIGHTS, padded(p.columns, PANEL) * p.depth);
    parallel_for(p.threads, p.columns, PANEL, [&](int64_t column, int64_t end) {
        pack_strided(p.b, column, end - column, PANEL, p.depth, packed + column * p.depth);
    });
    // As many rows for each thread, as often as BLOCK makes it.
    const int64_t parts = (p.rows + BLOCK * p.threads - 1) / (BLOCK * p.threads) * p.threads;
    const int64_t block = padded((p.rows + parts - 1) / std::max<int64_t>(1, parts), TALL);
    parallel_for(p.threads, p.rows, std::max<int64_t>(1, block), [&](int64_t row, int64_t end) {
        multiply_rows(p, packed, row, end - row);
    });
}
