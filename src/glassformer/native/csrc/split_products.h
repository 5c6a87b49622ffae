// Products of float32 numbers in parts (split.h): the drivers of the microkernel for processors with AMX.
#pragma once
#include "gemm.h"
#if HAS_AMX
#define SPLIT_STEPS 256  // of rows that are split at a time

// Split at most MAX_ROWS rows of `depth` entries.
static TileRows<Split> split_rows(const Operand& a, int64_t rows, int64_t depth) {
    const int64_t across = spread_stride(steps_of<float>(depth)), next_part = padded(rows, LANES) * across;
    auto to = workspace<Pair>(SPLIT_ROWS, PARTS * next_part);
    for (int64_t row = 0; a.along == 1 && row < rows; row++) {
        const float* from = a.data + row * a.across;
        for (int64_t at = 0; at < depth; at += SQUARE_STEPS)
            put_split_row(
                read_first(from + at, depth - at), read_first(from + at + LANES, depth - at - LANES),
                to + row * across + at / 2, next_part
            );
    }
    for (int64_t row = 0; a.along != 1 && row < rows; row += LANES)
        for (int64_t at = 0; at < depth; at += SQUARE_STEPS) {
            const Square square({a.data + row * a.across + at * a.along, a.across, a.along}, rows - row, depth - at);
            for (int64_t i = 0; i < LANES; i++)
                put_split_row(
                    load(square.numbers[i]), load(square.numbers[i] + LANES), to + (row + i) * across + at / 2,
                    next_part
                );
        }
    return {to, across, next_part};
}

// Multiply rows of float32 with `depth` entries in parts by all panels, with `a.along` 1 beyond SPLIT_STEPS;
// finish(column, sums) receives the sums [rows, PANEL] of each.
template <class Finish>
static void multiply_split(
    Operand a, int64_t rows, const Split* packed, int64_t columns, int64_t depth, Finish finish
) {
    const int64_t steps = steps_of<float>(depth);
    if (steps <= SPLIT_STEPS) return multiply_tiles(split_rows(a, rows, depth), rows, packed, columns, steps, finish);
    auto sums = workspace<float>(PARTIAL_SUMS, rows * padded(columns, PANEL));
    for (int64_t r = 0; r < steps; r += SPLIT_STEPS) {
        const int64_t count = std::min<int64_t>(SPLIT_STEPS, steps - r);
        const auto in_parts = split_rows({a.data + 2 * r, a.across, 1}, rows, std::min(2 * count, depth - 2 * r));
        configure_tiles(AMX_SIDE, AMX_SIDE, AMX_SIDE);
        for (int64_t column = 0; column < columns; column += PANEL)
            amx_panel<Split>(in_parts, rows, packed + column * steps + r * PANEL, count, sums + column * rows, !r);
        _tile_release();
    }
    for (int64_t column = 0; column < columns; column += PANEL) finish(column, sums + column * rows);
}

template <class Finish>
static void multiply_block(
    Operand a, int64_t rows, const Split* packed, int64_t columns, int64_t steps, Finish finish
) {
    multiply_split(a, rows, packed, columns, 2 * steps, finish);
}

#define GRADIENT_STEPS 256  // of the operands of a gradient that fit the L2 cache
#define GRADIENT_ROWS (2 * COLUMN_BLOCK)

// Add the column sums of a column block.
static void add_column_sums(const Split* a, int64_t steps, float* to) {
    Floats totals[COLUMN_BLOCK / LANES];
    UNROLL_FOR (int j = 0; j < COLUMN_BLOCK / LANES; j++) totals[j] = load(to + j * LANES);
    for (int64_t step = 0; step < steps; step++, a += COLUMN_BLOCK)
        UNROLL_FOR (int j = 0; j < COLUMN_BLOCK / LANES; j++)
            totals[j] += joined(a, j * LANES, false) + joined(a, j * LANES, true);
    UNROLL_FOR (int j = 0; j < COLUMN_BLOCK / LANES; j++) store(to + j * LANES, totals[j]);
}

// `count` steps, from the step `first` on, of a column block of `steps` steps, as rows of a product.
static void transpose_parts(
    const Split* block, int64_t first, int64_t count, Pair* rows, int64_t across, int64_t next_part
) {
    for (int part = 0; part < PARTS; part++)
        transpose(
            block[first * COLUMN_BLOCK].parts + part * COLUMN_BLOCK, PARTS * COLUMN_BLOCK, COLUMN_BLOCK, count,
            rows + part * next_part, across
        );
}

// The same as in gemm.h, for float32 in parts. Each thread multiplies GRADIENT_STEPS steps of up to GRADIENT_ROWS
// columns of a by all of x before the next steps, since x comes from the L3 cache.
template <class Put, class PutSums>
static auto weight_gradient_product(
    const Split* a, int64_t outputs, const Split* x, int64_t inputs, int64_t steps, Put put, PutSums put_sums
) {
    return loop(outputs, GRADIENT_ROWS, [=](int64_t from, int64_t end) {
        const int64_t rows = end - from, across = spread_stride(GRADIENT_STEPS), next_part = GRADIENT_ROWS * across;
        auto transposed = workspace<Pair>(TRANSPOSED, PARTS * next_part);
        auto sums = workspace<float>(PARTIAL_SUMS, GRADIENT_ROWS * inputs);
        float totals[GRADIENT_ROWS] = {};
        if (!steps) std::fill(sums, sums + GRADIENT_ROWS * inputs, 0.0f);
        for (int64_t r = 0; r < steps; r += GRADIENT_STEPS) {
            const int64_t count = std::min<int64_t>(GRADIENT_STEPS, steps - r);
            for (int64_t row = 0; row < rows; row += COLUMN_BLOCK) {
                const Split* block = a + (from + row) * steps;
                transpose_parts(block, r, count, transposed + row * across, across, next_part);
                add_column_sums(block + r * COLUMN_BLOCK, count, totals + row);
            }
            configure_tiles(AMX_SIDE, AMX_SIDE, AMX_SIDE);
            for (int64_t column = 0; column < inputs; column += PANEL)
                amx_panel<Split>(
                    {transposed, across, next_part}, rows, x + column * steps + r * PANEL, count,
                    sums + column * GRADIENT_ROWS, !r
                );
            _tile_release();
        }
        for (int64_t column = 0; column < inputs; column += PANEL)
            for (int64_t i = 0; i < rows; i++) put(from + i, column, sums + column * GRADIENT_ROWS + i * PANEL);
        for (int64_t row = 0; row < rows; row += COLUMN_BLOCK) put_sums(from + row, totals + row);
    });
}
#endif
