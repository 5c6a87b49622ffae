// C = A · B + b for training, in float32, by all cores.
//
// B is packed first: panels of PANEL columns, and within a panel the entries of all its columns for one step of the sum
// side by side. A is read where it lies when its rows are consecutive there, and is packed likewise when they are not.
// Every entry of C is summed by one core in one order: the result does not depend on how many there are.
#pragma once
#include "microkernel.h"
#include "thread_pool.h"
#include <algorithm>
#include <vector>

#define BLOCK_ROWS 96     // of A, whose sums then stay in the first two levels of the cache
#define BLOCK_DEPTH 1024  // so that a panel of B does

struct Product {
    int64_t rows, columns, depth;
    Operand a, b;
    const float* bias;  // one for each column, or null
    float* result;      // [rows, columns]
    int64_t threads;
};

// Entries first … first + count for each step of the sum side by side: to[r · width + i]. Missing ones are 0.
static void pack_side_by_side(
    const Operand& from, int64_t first, int64_t count, int64_t width, int64_t depth, float* to
) {
    const float* data = from.data + first * from.across;
    for (int64_t r = 0; r < depth; r++, to += width, data += from.along) {
        if (from.across == 1)
            memcpy(to, data, count * sizeof(float));
        else
            for (int64_t i = 0; i < count; i++) to[i] = data[i * from.across];
        std::fill(to + count, to + width, 0.0f);
    }
}

// As many rows for each core, as often as BLOCK_ROWS make it.
static int64_t rows_of_a_block(const Product& p) {
    const int64_t turns = (p.rows + BLOCK_ROWS * p.threads - 1) / (BLOCK_ROWS * p.threads);
    return padded((p.rows + turns * p.threads - 1) / (turns * p.threads), TALL);
}

// Some rows of the result, all columns.
static void multiply_rows(const Product& p, const float* packed, int64_t start, int64_t block) {
    const int64_t rows = std::min(block, p.rows - start);
    thread_local std::vector<float> sums, own;
    sums.resize(block * PANEL);
    Operand a = p.a;
    a.data += start * a.across;
    if (a.along != 1) {
        own.resize(p.depth * block);
        pack_side_by_side(p.a, start, rows, block, p.depth, own.data());
        a = {own.data(), 1, block};
    }
    for (int64_t column = 0; column < p.columns; column += PANEL) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (int64_t r = 0; r < p.depth; r += BLOCK_DEPTH) {
            const Operand from = {a.data + r * a.along, a.across, a.along};
            const int64_t depth = std::min<int64_t>(BLOCK_DEPTH, p.depth - r);
            const float* panel = packed + column * p.depth + r * PANEL;
            in_tiles(rows, [&](auto height, int64_t row) {
                const Operand some = {from.data + row * from.across, from.across, from.along};
                add_block<decltype(height)::value>(some, panel, depth, sums.data() + row * PANEL);
            });
        }
        const int64_t count = std::min<int64_t>(PANEL, p.columns - column);
        for (int64_t row = 0; row < rows; row++) {
            float* values = sums.data() + row * PANEL;
            for (int64_t j = 0; p.bias && j < count; j++) values[j] += p.bias[column + j];
            memcpy(p.result + (start + row) * p.columns + column, values, count * sizeof(float));
        }
    }
}

static void multiply(const Product& p) {
    thread_local std::vector<float> packed;
    packed.resize(padded(p.columns, PANEL) * p.depth);
    float* to = packed.data();
    parallel_for(p.threads, p.columns, PANEL, [&](int64_t column, int64_t end) {
        pack_side_by_side(p.b, column, end - column, PANEL, p.depth, to + column * p.depth);
    });
    const int64_t block = rows_of_a_block(p);
    parallel_for(p.threads, p.rows, block, [&](int64_t start, int64_t) { multiply_rows(p, to, start, block); });
}
