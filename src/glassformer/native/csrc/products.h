// C = A · B + b for training, in float32, for matrices of any size and strides, on all cores.
#pragma once
#include "gemm.h"

#define CACHED_STEPS 1024         // steps of a block of rows of A
#define CACHED_ENTRIES (1 << 19)  // entries of B

struct MatrixProduct {
    int64_t rows, columns, depth;
    Operand a, b;
    const float* bias;  // [columns] or null
    float* result;      // [rows, columns]
    int64_t threads;
};

// Columns and steps of B that are packed at a time.
struct Packing {
    int64_t first_column, columns, first_step, steps;
};

// Store at most LANES sums, or add them to the sums of previous steps.
static inline void put_sums(Floats sums, const float* bias, bool add, int64_t count, float* to) {
    if (count >= LANES) {
        store(to, sums + (add ? load(to) : bias ? load(bias) : Floats{}));
    } else {
        for (int64_t i = 0; i < count; i++) to[i] = sums[i] + (add ? to[i] : bias ? bias[i] : 0.0f);
    }
}

// `count` rows of the result from `first` on; A is packed unless its rows are contiguous.
static void multiply_rows(
    const MatrixProduct& p, const Packing& packing, const float* packed, int64_t first, int64_t count
) {
    Operand a = {p.a.data + first * p.a.across + packing.first_step * p.a.along, p.a.across, p.a.along};
    if (TRANSPOSE_FLOATS && a.across == 1) {
        a = transposed(a.data, a.along, count, packing.steps);
    } else if (a.along != 1) {
        auto rows = workspace<float>(BLOCK_INPUT, packing.steps * BLOCK);
        pack_strided(a, 0, count, BLOCK, packing.steps, rows);
        a = {rows, 1, BLOCK};
    }
    multiply_block(a, count, packed, packing.columns, packing.steps, [&](int64_t panel, const float* sums) {
        const int64_t column = packing.first_column + panel, width = std::min<int64_t>(PANEL, packing.columns - panel);
        for (int64_t row = 0; row < count; row++)
            for (int64_t j = 0; j < width; j += LANES)
                put_sums(
                    load(sums + row * PANEL + j), p.bias ? p.bias + column + j : nullptr, packing.first_step, width - j,
                    p.result + (first + row) * p.columns + column + j
                );
    });
}

// Multiply all rows by the columns of B that fit the cache, packed, before the next columns.
static void multiply(const MatrixProduct& p) {
    const int64_t depth_parts = std::max<int64_t>(1, (p.depth + CACHED_STEPS - 1) / CACHED_STEPS);
    const int64_t depth = (p.depth + depth_parts - 1) / depth_parts;
    const int64_t cached_columns = CACHED_ENTRIES / std::max<int64_t>(1, depth) / PANEL * PANEL;
    const int64_t columns_at_once = std::min<int64_t>(padded(p.columns, PANEL), cached_columns);
    auto packed = workspace<float>(WEIGHTS, columns_at_once * depth);
    // Equal numbers of rows for all threads, at most BLOCK each.
    const int64_t parts = (p.rows + BLOCK * p.threads - 1) / (BLOCK * p.threads) * p.threads;
    const int64_t block = std::max<int64_t>(1, padded((p.rows + parts - 1) / std::max<int64_t>(1, parts), TALL));
    for (int64_t column = 0; column < p.columns; column += columns_at_once)
        for (int64_t part = 0; part < depth_parts; part++) {
            const int64_t step = part * depth, steps = std::min(depth, p.depth - step);
            const Packing packing = {column, std::min(columns_at_once, p.columns - column), step, steps};
            const Operand b = {p.b.data + step * p.b.along, p.b.across, p.b.along};
            parallel_for(p.threads, packing.columns, PANEL, [&](int64_t from, int64_t to) {
                pack_strided(b, column + from, to - from, PANEL, steps, packed + from * steps);
            });
            parallel_for(p.threads, p.rows, block, [&](int64_t from, int64_t to) {
                multiply_rows(p, packing, packed, from, to - from);
            });
        }
}
