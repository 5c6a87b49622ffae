// Matrix products in float32, bfloat16 and int8: the packing of operands, and the driver of the microkernel.
//
// One operand is packed into panels of PANEL columns. In a panel, the entries of all columns for one step of the sum
// are adjacent, so the inner loop reads memory in order. The other operand is read in place. One thread sums an entry
// from the first step to the last: the result depends neither on the number of threads nor on other rows.
#pragma once
#include "tiles.h"
#include "thread_pool.h"
#include "workspace.h"
#include <algorithm>
#include <vector>

// Number of rows over which gradients of a norm are summed first. It determines the bits of training. With AVX2 it is
// four times the five rows of earlier tiles, so that earlier runs can be resumed.
#if LANES == 16
#define CHUNK 24
#else
#define CHUNK 20
#endif
// LAST_BLOCK is the size in the last quarter of a range, for an even end of all threads.
#if HAS_AMX
#define BLOCK (10 * CHUNK)  // rows: packed weights come from the L3 cache once for each block
#define LAST_BLOCK (5 * CHUNK)
#else
#define BLOCK (2 * CHUNK)
#define LAST_BLOCK (CHUNK % TALL ? BLOCK : CHUNK)  // a few rows of a tile take as long as all
#endif
#define DEPTH_AT_ONCE 512              // steps of a panel that fit the L2 cache
#define COLUMN_BLOCK 64                // adjacent columns of the transposed operand
#define TRANSPOSE_FLOATS (LANES == 8)  // 512-bit broadcasts read columns as fast as rows
#if HAS_AMX
#define MAX_ROWS 288
#else
#define MAX_ROWS std::max<int64_t>(BLOCK, COLUMN_BLOCK)
#endif
static_assert(COLUMN_BLOCK % PANEL == 0, "full panels");

// Units of packed operands. With AMX float32 is packed in parts, of two entries like bfloat16.
#if HAS_AMX
struct SplitStep {
    typedef Split Unit;
    enum { ENTRIES = 2 };
};
template <class T> using PackedStep = std::conditional_t<std::is_same<T, float>::value, SplitStep, Step<T>>;
#else
template <class T> using PackedStep = Step<T>;
#endif
template <class T> using Unit = typename PackedStep<T>::Unit;
template <class T> using Panels = Unit<T>*;
template <class T> static int64_t steps_of(int64_t depth) {
    return (depth + PackedStep<T>::ENTRIES - 1) / PackedStep<T>::ENTRIES;
}

// Row stride of `steps` units: an odd multiple of 16 spreads rows over all sets of the cache.
static inline int64_t spread_stride(int64_t steps) { return padded(steps, 32) + 16; }

// Interleave two neighboring rows into units, `below` null after the last row; in float32 copy one row.
static inline void interleave(const float* row, const float*, int64_t count, float* to) {
    memcpy(to, row, count * sizeof(float));
}

static inline void interleave(const uint16_t* row, const uint16_t* below, int64_t count, Pair* to) {
    for (int64_t i = 0; i < count; i++) to[i] = row[i] | static_cast<uint32_t>(below ? below[i] : 0) << 16;
}

#if HAS_AMX
static inline void interleave(const float* row, const float* below, int64_t count, Split* to) {
    for (int64_t i = 0; i < count; i += LANES)
        put_split(load(row + i), below ? load(below + i) : Floats{}, to->parts + i, count);
}
#endif

// Pack one panel of `count` columns from `first` on, of any strides: to[step · width + column], zeros from `count` on.
static void pack_strided(const Operand& from, int64_t first, int64_t count, int64_t width, int64_t steps, float* to) {
    const float* data = from.data + first * from.across;
    for (int64_t step = 0; step < steps; step++, to += width, data += from.along) {
        if (from.across == 1) memcpy(to, data, count * sizeof(float));
        else
            for (int64_t i = 0; i < count; i++) to[i] = data[i * from.across];
        std::fill(to + count, to + width, 0.0f);
    }
}

// Transpose LANES steps of LANES rows to columns of a panel, from `column` on. Pairs are moved as 32-bit numbers.
template <class T>
static void pack_square(const T* from, int64_t stride, Unit<T>* to, int64_t column) {
#if HAS_AMX
    if constexpr (std::is_same<T, float>::value) return pack_split_square(from, stride, LANES, to, column);
#endif
    transpose_square(
        reinterpret_cast<const float*>(from), stride / Step<T>::ENTRIES, reinterpret_cast<float*>(to) + column, PANEL
    );
}

// Pack W [outputs, inputs] for x Wᵀ into panels of outputs. Widths are multiples of COLUMN_BLOCK.
template <class T>
static auto packing_for_outputs(const T* weight, int64_t outputs, int64_t inputs, Unit<T>* to) {
    const int64_t steps = steps_of<T>(inputs);
    return loop(outputs, COLUMN_BLOCK, [=](int64_t first, int64_t end) {
        for (int64_t output = first; output < end; output += LANES)
            for (int64_t r = 0; r < steps; r += LANES)
                pack_square(
                    weight + output * inputs + r * PackedStep<T>::ENTRIES, inputs,
                    to + output / PANEL * PANEL * steps + r * PANEL, output % PANEL
                );
    });
}

// Pack rows that are summed over into panels of WIDTH columns and `steps` units: `rows` rows, beginning at step
// `first`.
template <int WIDTH, class T>
static void pack_panels(
    const T* x, int64_t stride, int64_t rows, int64_t columns, int64_t first, int64_t steps, Unit<T>* to
) {
    for (int64_t column = 0; column < columns; column += WIDTH) {
        Unit<T>* units = to + column * steps + first * WIDTH;
        for (int64_t row = 0; row < rows; row += PackedStep<T>::ENTRIES, units += WIDTH) {
            const T* at = x + row * stride + column;
            interleave(at, row + 1 < rows ? at + stride : nullptr, WIDTH, units);
        }
    }
}

// Two steps of LANES columns of a panel, from `column` on, as units.
static inline void put_units(Floats upper, Floats lower, Pair* panel, int64_t column) {
    store(reinterpret_cast<int32_t*>(panel + column), rounded_bits(upper) | rounded_bits(lower) << 16);
}

#if HAS_AMX
static inline void put_units(Floats upper, Floats lower, Split* panel, int64_t column) {
    put_split(upper, lower, panel->parts + column, PANEL);
}
#endif

// Write rows of a panel, rounded, and pack them; values(row, column) is a vector of them.
template <class T, class U, class Values>
static void put_and_pack(int64_t rows, T* to, int64_t stride, U* panel, Values values) {
    for (int64_t i = 0; i < rows; i += 2, to += 2 * stride, panel += PANEL)
        for (int64_t j = 0; j < PANEL; j += LANES) {
            const bool both = i + 1 < rows;
            const Floats upper = values(i, j), lower = both ? values(i + 1, j) : Floats{};
            write(to + j, upper);
            if (both) write(to + stride + j, lower);
            put_units(upper, lower, panel, j);
        }
}

template <class Values>
static void put_and_pack(int64_t rows, float* to, int64_t stride, float* panel, Values values) {
    for (int64_t i = 0; i < rows; i++, to += stride, panel += PANEL)
        for (int64_t j = 0; j < PANEL; j += LANES) {
            const Floats row = values(i, j);
            store(to + j, row), store(panel + j, row);
        }
}

template <class T>
static auto packing_rows(
    const T* x, int64_t stride, int64_t rows, int64_t columns, int64_t first, int64_t steps, Unit<T>* to
) {
    return loop(rows, CHUNK, [=](int64_t row, int64_t end) {
        const int64_t before = row / PackedStep<T>::ENTRIES;
        pack_panels<PANEL>(x + row * stride, stride, end - row, columns, first + before, steps, to);
    });
}

#if HAS_AMX
// True if AMX multiplies this number of rows; for few rows of bytes vector instructions are as fast.
template <class U>
static bool use_tiles(int64_t rows) {
    if (std::is_same<U, Group>::value) return rows >= 8 && amx_permitted();
    return std::is_same<U, Pair>::value;
}

// Rows of bytes are computed in full tiles: the rows after the last one are read too.
template <class U, class Finish>
static void multiply_tiles(
    OperandOf<U> a, int64_t rows, const Packed<U>* packed, int64_t columns, int64_t steps, Finish finish
) {
    alignas(64) Number<U> sums[MAX_ROWS * PANEL];
    const int64_t computed = std::is_same<U, Group>::value ? padded(rows, AMX_SIDE) : rows;
    if (!steps) std::fill(std::begin(sums), std::end(sums), Number<U>{});
    configure_tiles(AMX_SIDE, AMX_SIDE, AMX_SIDE);
    for (int64_t column = 0; column < columns; column += PANEL) {
        amx_panel<U>({a.data, a.across}, computed, packed + column * steps, steps, sums);
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
        add_block<1, true, PANELS>(a, panel, steps, sums, panel, PANEL * steps);
        for (int i = 0; i < PANELS; i++) finish(column + i * PANEL, sums + i * PANEL);
    }
    return column;
}

// Multiply at most MAX_ROWS rows by all panels. finish(column, sums) receives the sums [rows, PANEL] of each panel and
// may change them. With AMX, `a.along` is 1 except in float32.
template <class U, class Finish>
static void multiply_block(
    OperandOf<U> a, int64_t rows, const Packed<U>* packed, int64_t columns, int64_t steps, Finish finish
) {
#if HAS_AMX
    if constexpr (!std::is_same<U, float>::value)
        if (use_tiles<U>(rows)) return multiply_tiles(a, rows, packed, columns, steps, finish);
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
                const auto later = steps_to_fetch(panel, count, row);
                if (r) add_block<decltype(height)::value>(operand, panel, count, sums + row * PANEL, later);
                else add_block<decltype(height)::value, true>(operand, panel, count, sums + row * PANEL, later);
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
    static int64_t units(int64_t rows) { return (rows + CHUNK - 1) / CHUNK; }
    static int64_t full_blocks(int64_t rows) { return rows / BLOCK * 3 / 4; }
    static int64_t last_blocks(int64_t rows) {
        const int64_t size = rows > BLOCK ? LAST_BLOCK : BLOCK / 2;
        return (rows - full_blocks(rows) * BLOCK + size - 1) / size;
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

template <class T>
static OperandOf<typename Step<T>::Unit> rows_at(const T* x, int64_t stride) {
    return {reinterpret_cast<const typename Step<T>::Unit*>(x), stride / Step<T>::ENTRIES, 1};
}

static inline Floats ones(const float*) { return broadcast(1.0f); }
#if HAS_BFLOAT16
static inline __m512bh ones(const Pair*) { return broadcast(static_cast<Pair>(0x3f803f80)); }
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

// aᵀ · x, with a in column blocks and x in panels. Calls put(column of a, column of x, sums of a panel) and
// put_sums(first column of a block of a, sums of its columns).
template <class U, class Put, class PutSums>
static auto weight_gradient_product(
    const U* a, int64_t outputs, const U* x, int64_t inputs, int64_t steps, Put put, PutSums put_sums
) {
    return loop(outputs, COLUMN_BLOCK, [=](int64_t first, int64_t) {
        const U* block = a + first * steps;
        multiply_block(
            columns_of(block, steps), COLUMN_BLOCK, x, inputs, steps, [&](int64_t column, const float* sums) {
                for (int64_t i = 0; i < COLUMN_BLOCK; i++) put(first + i, column, sums + i * PANEL);
            }
        );
        float totals[COLUMN_BLOCK];
        sum_columns(block, steps, totals);
        put_sums(first, totals);
    });
}
