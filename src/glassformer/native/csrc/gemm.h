// Matrix products in float32, bfloat16 and int8: the driver of the microkernel. One operand is packed into panels
// (packing.h), the other is read in place. One thread sums an entry from the first step to the last: the result depends
// neither on the number of threads nor on other rows.
#pragma once
#include "amx.h"
#include "packing.h"
#include "workspace.h"

// LAST_BLOCK is the size in the last quarter of a range, for an even end of all threads.
#if HAS_AMX
#define BLOCK (10 * CHUNK)  // rows: packed weights come from the L3 cache once for each block
#define LAST_BLOCK (5 * CHUNK)
#else
#define BLOCK (2 * CHUNK)
#define LAST_BLOCK (CHUNK % TALL ? BLOCK : CHUNK)  // a few rows of a tile take as long as all
#endif
#define DEPTH_AT_ONCE 512              // steps of a panel that fit the L2 cache
#define TRANSPOSE_FLOATS (LANES < 16)  // 512-bit broadcasts read columns as fast as rows
#if HAS_AMX
#define MAX_ROWS 288
#else
#define MAX_ROWS std::max<int64_t>(BLOCK, COLUMN_BLOCK)
#endif

#if HAS_AMX
// True if AMX multiplies this number of rows; for few rows of bytes vector instructions are as fast.
template <class U>
static bool use_tiles(int64_t rows) {
    if (std::is_same<U, Group>::value) return rows >= 8;
    return std::is_same<U, Pair>::value;
}

// Multiply at most MAX_ROWS rows by all panels; finish(column, sums) receives the sums [rows, PANEL] of each. Rows of
// bytes are computed in full tiles: the rows after the last one are read too.
template <class U, class Finish>
static void multiply_tiles(
    TileRows<U> a, int64_t rows, const Packed<U>* packed, int64_t columns, int64_t steps, Finish finish
) {
    alignas(64) Number<U> sums[MAX_ROWS * PANEL];
    const int64_t computed = std::is_same<U, Group>::value ? padded(rows, AMX_SIDE) : rows;
    if (!steps) std::fill(std::begin(sums), std::end(sums), Number<U>{});
    configure_tiles(AMX_SIDE, AMX_SIDE, AMX_SIDE);
    for (int64_t column = 0; column < columns; column += PANEL) {
        amx_panel<U>(a, computed, packed + column * steps, steps, sums);
        finish(column, sums);
    }
    _tile_release();
}
#endif

// Multiply one row by PANELS panels at a time; returns the number of columns computed.
template <int PANELS, class U, class Finish>
static int64_t multiply_row(OperandOf<U> a, const Packed<U>* packed, int64_t columns, int64_t steps, Finish finish) {
    Number<U> sums[PANELS * PANEL] = {};
    int64_t column = 0;
    for (; column + PANELS * PANEL <= columns; column += PANELS * PANEL) {
        const Packed<U>* panel = packed + column * steps;
        add_block<1, true, PANELS>(a, panel, steps, sums, {panel, SHARE}, PANEL * steps);
        for (int i = 0; i < PANELS; i++) finish(column + i * PANEL, sums + i * PANEL);
    }
    return column;
}

// Multiply at most MAX_ROWS rows, [rows, steps], by all panels, [columns / PANEL, steps, PANEL]. finish(column, sums)
// receives the sums [rows, PANEL] of each panel and may change them. With AMX, `a.along` is 1 except in float32.
template <class U, class Finish>
static void multiply_block(
    OperandOf<U> a, int64_t rows, const Packed<U>* packed, int64_t columns, int64_t steps, Finish finish
) {
#if HAS_AMX
    if constexpr (!std::is_same<U, float>::value)
        if (use_tiles<U>(rows)) return multiply_tiles<U>({a.data, a.across}, rows, packed, columns, steps, finish);
#endif
    Number<U> sums[MAX_ROWS * PANEL];
    if (!steps) std::fill(std::begin(sums), std::end(sums), Number<U>{});
    int64_t column = 0;
    if constexpr (std::is_same<U, float>::value && PANELS_OF_A_ROW > 1)
        if (rows == 1) column = multiply_row<PANELS_OF_A_ROW>(a, packed, columns, steps, finish);
    for (; column < columns; column += PANEL) {
        for (int64_t r = 0; r < steps; r += DEPTH_AT_ONCE) {
            const Packed<U>* panel = packed + column * steps + r * PANEL;
            const int64_t count = std::min<int64_t>(DEPTH_AT_ONCE, steps - r);
            for_each_tile(rows, [&](auto height, int64_t row) {
                const OperandOf<U> operand = {a.data + row * a.across + r * a.along, a.across, a.along};
                const auto ahead = steps_to_fetch(panel, count, row, rows);
                if (r) add_block<decltype(height)::value>(operand, panel, count, sums + row * PANEL, ahead);
                else add_block<decltype(height)::value, true>(operand, panel, count, sums + row * PANEL, ahead);
            });
        }
        finish(column, sums);
    }
}

// Loop of work(first, count) over BLOCK rows at a time, at most LAST_BLOCK in the last quarter of a thread's range. A
// range of at most BLOCK rows has blocks of at most half as many, so that two threads share them.
template <class Work>
struct BlockLoop {
    int64_t rows;
    Work work;

    int64_t chunks_of(int64_t range, int64_t ranges) const {
        const int64_t size = rows_of(range, ranges);
        return full_blocks(size) + last_blocks(size);
    }
    void run_chunk(int64_t range, int64_t ranges, int64_t index) const {
        const int64_t size = rows_of(range, ranges), first = first_of_block(index, size);
        work(first_row(range, ranges) + first, first_of_block(index + 1, size) - first);
    }

private:
    // First rows of ranges and blocks are multiples of CHUNK.
    int64_t first_row(int64_t range, int64_t ranges) const {
        return std::min(rows, range * units(rows) / ranges * CHUNK);
    }
    int64_t rows_of(int64_t range, int64_t ranges) const {
        return first_row(range + 1, ranges) - first_row(range, ranges);
    }
    static int64_t units(int64_t rows) { return ceil_div(rows, CHUNK); }
    static int64_t full_blocks(int64_t rows) { return rows / BLOCK * 3 / 4; }
    static int64_t last_blocks(int64_t rows) {
        const int64_t size = rows > BLOCK ? LAST_BLOCK : BLOCK / 2;
        return ceil_div(rows - full_blocks(rows) * BLOCK, size);
    }
    // First row of a block of `rows` rows; the last blocks are nearly equal.
    static int64_t first_of_block(int64_t index, int64_t rows) {
        const int64_t full = full_blocks(rows);
        if (index <= full) return index * BLOCK;
        const int64_t last = units(rows - full * BLOCK) * (index - full) / last_blocks(rows);
        return std::min(rows, full * BLOCK + last * CHUNK);
    }
};

template <class Work>
static BlockLoop<Work> blocks(int64_t rows, Work work) {
    return {rows, work};
}

// Row stride of `steps` units: an odd multiple of 16 spreads rows over all sets of the cache.
static inline int64_t spread_stride(int64_t steps) { return padded(steps, 32) + 16; }

template <class T>
static OperandOf<typename Step<T>::Unit> rows_at(const T* x, int64_t stride) {
    return {reinterpret_cast<const typename Step<T>::Unit*>(x), stride / Step<T>::ENTRIES, 1};
}

// Write the sums of a panel, plus the bias or null, to rows of `to`.
template <class T, class X>
static void put_panel(const float* sums, int64_t rows, const T* bias, X* to, int64_t stride) {
    for (int64_t i = 0; i < rows; i++, sums += PANEL, to += stride) {
        fetch_line(to + PANEL);
        for (int64_t j = 0; j < PANEL; j += LANES) {
            const Floats values = load(sums + j);
            write(to + j, bias ? values + read(bias + j) : values);
        }
    }
}

static inline Floats ones(const float*) { return broadcast(1.0f); }
#if HAS_BFLOAT16
static inline PairEntries ones(const Pair*) {
    Pair pair = 0x3f803f80;
#if defined(__aarch64__)
    __asm__("" : "+r"(pair));  // GCC 12 would load the constant as 1 of IEEE half precision
#endif
    return broadcast(pair);
}
#endif

// Column sums of a column block.
template <class U>
static void sum_columns(const U* a, int64_t steps, float* to) {
    typename Registers<U>::Sum totals[COLUMN_BLOCK / LANES] = {};
    for (int64_t step = 0; step < steps; step++, a += COLUMN_BLOCK)
        UNROLL_FOR (int j = 0; j < COLUMN_BLOCK / LANES; j++)
            totals[j] = add_product(totals[j], entries_at(a + j * LANES), ones(a));
    UNROLL_FOR (int j = 0; j < COLUMN_BLOCK / LANES; j++) store(to + j * LANES, (Floats)totals[j]);
}

// Transpose of a [steps, columns] with row stride `stride`.
template <class U>
static void transpose(const U* a, int64_t stride, int64_t columns, int64_t steps, U* rows, int64_t row_stride) {
    for (int64_t step = 0; step < steps; step += LANES) {
        const int64_t count = std::min<int64_t>(LANES, steps - step);
        for (int64_t column = 0; column < columns; column += LANES) {
            const U* from = a + step * stride + column;
            U* to = rows + column * row_stride + step;
            const int64_t width = std::min<int64_t>(LANES, columns - column);
            if (count == LANES && width == LANES)
                // Pairs of bfloat16 are moved as 32-bit numbers.
                transpose_square(
                    reinterpret_cast<const float*>(from), stride, reinterpret_cast<float*>(to), row_stride
                );
            else
                for (int64_t i = 0; i < count; i++)
                    for (int64_t j = 0; j < width; j++) to[j * row_stride + i] = from[i * stride + j];
        }
    }
}

// Columns of a column block as rows of a product: read in place, or transposed.
template <class U>
static OperandOf<U> columns_of(const U* a, int64_t steps) {
    const bool transposes = std::is_same<U, float>::value ? TRANSPOSE_FLOATS : HAS_AMX;
    if (!transposes) return {a, 1, COLUMN_BLOCK};
    const int64_t across = spread_stride(steps);
    auto rows = workspace<U>(TRANSPOSED, COLUMN_BLOCK * across);
    transpose(a, COLUMN_BLOCK, COLUMN_BLOCK, steps, rows, across);
    return {rows, across, 1};
}

#if LANES == 8
// Memory to be prefetched into the L2 cache, a share of it at a time.
struct Upcoming {
    const float* from;
    int64_t lines, share;

    void fetch() {
        for (int64_t i = std::min(share, lines); i > 0; i--, lines--, from += LINE) __builtin_prefetch(from, 0, 2);
    }
};

// multiply_columns for many steps, DEPTH_AT_ONCE of them at a time: their transpose stays in the L2 cache while the
// panels are read, and the next steps of `a` arrive there meanwhile. The sums of all panels are finished at the end.
template <class Finish>
static void multiply_many_steps(const float* a, const float* x, int64_t inputs, int64_t steps, Finish finish) {
    auto sums = workspace<float>(PARTIAL_SUMS, COLUMN_BLOCK * inputs);
    const int64_t tiles = inputs / PANEL * ceil_div(COLUMN_BLOCK, TALL);
    for (int64_t r = 0; r < steps; r += DEPTH_AT_ONCE) {
        const int64_t count = std::min<int64_t>(DEPTH_AT_ONCE, steps - r), end = r + count;
        const int64_t lines = std::min<int64_t>(DEPTH_AT_ONCE, steps - end) * COLUMN_BLOCK / LINE;
        const Operand rows = columns_of(a + r * COLUMN_BLOCK, count);
        Upcoming upcoming = {a + end * COLUMN_BLOCK, lines, ceil_div(lines, std::max<int64_t>(tiles, 1))};
        for (int64_t column = 0; column < inputs; column += PANEL) {
            const float* panel = x + column * steps + r * PANEL;
            const float* next = column + PANEL < inputs ? panel + steps * PANEL : x + end * PANEL;
            float* to = sums + column * COLUMN_BLOCK;
            for_each_tile(COLUMN_BLOCK, [&](auto height, int64_t row) {
                const Operand operand = {rows.data + row * rows.across, rows.across, 1};
                const auto ahead = share_to_fetch(panel, next, count, row, COLUMN_BLOCK);
                upcoming.fetch();
                if (r) add_block<decltype(height)::value>(operand, panel, count, to + row * PANEL, ahead);
                else add_block<decltype(height)::value, true>(operand, panel, count, to + row * PANEL, ahead);
            });
        }
    }
    for (int64_t column = 0; column < inputs; column += PANEL) finish(column, sums + column * COLUMN_BLOCK);
}
#endif

// Multiply the columns of a column block by all panels of x; finish(column, sums) as in multiply_block.
template <class U, class Finish>
static void multiply_columns(const U* a, const U* x, int64_t inputs, int64_t steps, Finish finish) {
#if LANES == 8
    if constexpr (std::is_same<U, float>::value)
        if (steps > DEPTH_AT_ONCE) return multiply_many_steps(a, x, inputs, steps, finish);
#endif
    multiply_block(columns_of(a, steps), COLUMN_BLOCK, x, inputs, steps, finish);
}

// aᵀ · x, with a in column blocks and x in panels. Calls put(column of a, column of x, sums of a panel) and
// put_sums(first column of a block of a, sums of its columns).
template <class U, class Put, class PutSums>
static auto weight_gradient_product(
    const U* a, int64_t outputs, const U* x, int64_t inputs, int64_t steps, Put put, PutSums put_sums
) {
    return loop(outputs, COLUMN_BLOCK, [=](int64_t first, int64_t) {
        const U* block = a + first * steps;
        multiply_columns(block, x, inputs, steps, [&](int64_t column, const float* sums) {
            for (int64_t i = 0; i < COLUMN_BLOCK; i++) put(first + i, column, sums + i * PANEL);
        });
        float totals[COLUMN_BLOCK];
        sum_columns(block, steps, totals);
        put_sums(first, totals);
    });
}
