// C = A · B + b for training, in float32, of matrices of any size and strides, by all cores.
#pragma once
#include "gemm.h"

#define CACHED_STEPS 1024         // of a block of rows of A
#define CACHED_ENTRIES (1 << 19)  // of B

struct MatrixProduct {
    int64_t rows, columns, depth;
    Operand a, b;
    const float* bias;  // one for each column, or null
    float* result;      // [rows, columns]
    int64_t threads;
};

// What of B is packed at a time: some columns of some steps.
struct Packing {
    int64_t first_column, columns, first_step, steps;
};

// Puts LANES or fewer sums into place, or adds them to those of the steps before.
static inline void put_sums(Floats sums, const float* bias, bool add, int64_t count, float* to) {
    if (count >= LANES) {
        store(to, sums + (add ? load(to) : bias ? load(bias) : Floats{}));
    } else {
        for (int64_t i = 0; i < count; i++) to[i] = sums[i] + (add ? to[i] : bias ? bias[i] : 0.0f);
    }
}

// Some rows of the result; A is packed where its rows are not consecutive.
static void multiply_rows(
    const MatrixProduct& p, const Packing& of, const float* packed, int64_t first, int64_t count
) {
    Operand a = {p.a.data + first * p.a.across + of.first_step * p.a.along, p.a.across, p.a.along};
    if (TRANSPOSE_FLOATS && a.across == 1) {
        a = transposed(a.data, a.along, count, of.steps);
    } else if (a.along != 1) {
        auto own = workspace<float>(BLOCK_INPUT, of.steps * BLOCK);
        pack_strided(a, 0, count, BLOCK, of.steps, own);
        a = {own, 1, BLOCK};
    }
    multiply_block(a, count, packed, of.columns, of.steps, [&](int64_t panel, const float* sums) {
        const int64_t column = of.first_column + panel, width = std::min<int64_t>(PANEL, of.columns - panel);
        for (int64_t row = 0; row < count; row++)
            for (int64_t j = 0; j < width; j += LANES)
                put_sums(
                    load(sums + row * PANEL + j), p.bias ? p.bias + column + j : nullptr, of.first_step, width - j,
                    p.result + (first + row) * p.columns + column + j
                );
    });
}

// As many columns of B at a time as the cache holds, packed: all rows pass them before the next ones.
static void multiply(const MatrixProduct& p) {
    const int64_t depth_parts = std::max<int64_t>(1, (p.depth + CACHED_STEPS - 1) / CACHED_STEPS);
    const int64_t depth = (p.depth + depth_parts - 1) / depth_parts;
    const int64_t fitting = CACHED_ENTRIES / std::max<int64_t>(1, depth) / PANEL * PANEL;
    const int64_t together = std::min<int64_t>(padded(p.columns, PANEL), fitting);
    auto packed = workspace<float>(WEIGHTS, together * depth);
    // As many rows for each thread, as often as BLOCK makes it.
    const int64_t parts = (p.rows + BLOCK * p.threads - 1) / (BLOCK * p.threads) * p.threads;
    const int64_t block = std::max<int64_t>(1, padded((p.rows + parts - 1) / std::max<int64_t>(1, parts), TALL));
    for (int64_t column = 0; column < p.columns; column += together)
        for (int64_t part = 0; part < depth_parts; part++) {
            const int64_t step = part * depth, steps = std::min(depth, p.depth - step);
            const Packing of = {column, std::min(together, p.columns - column), step, steps};
            const Operand b = {p.b.data + step * p.b.along, p.b.across, p.b.along};
            parallel_for(p.threads, of.columns, PANEL, [&](int64_t from, int64_t to) {
                pack_strided(b, column + from, to - from, PANEL, steps, packed + from * steps);
            });
            parallel_for(p.threads, p.rows, block, [&](int64_t from, int64_t to) {
                multiply_rows(p, of, packed, from, to - from);
            });
        }
}
