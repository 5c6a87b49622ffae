// Packing of an operand of a product into panels of PANEL columns. In a panel, the entries of all columns for one step
// of the sum are adjacent, so the inner loop reads memory in order.
#pragma once
#include "split.h"
#include "thread_pool.h"

// Number of rows over which gradients of a norm are summed first. It determines the bits of training. With AVX2 it is
// four times the five rows of earlier tiles, so that earlier runs can be resumed.
#if LANES == 16
#define CHUNK 24
#else
#define CHUNK 20
#endif
#define COLUMN_BLOCK 64   // adjacent columns of the transposed operand
#define STEPS_AT_ONCE 32  // steps that a thread packs
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
template <class T> static int64_t steps_of(int64_t depth) { return ceil_div(depth, PackedStep<T>::ENTRIES); }

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

// Pack LANES columns of the rows of one step, from `column` on: of one row as floats, or of two as units.
static inline void put_units(Floats row, Floats, float* panel, int64_t column) { store(panel + column, row); }

static inline void put_units(Floats upper, Floats lower, Pair* panel, int64_t column) {
    store(reinterpret_cast<int32_t*>(panel + column), paired(rounded(upper), rounded(lower)));
}

#if HAS_AMX
static inline void put_units(Floats upper, Floats lower, Split* panel, int64_t column) {
    put_split(upper, lower, panel->parts + column, PANEL);
}
#endif

// True if the step that begins at `row` has a second row; there are `rows` in all.
template <class T>
static inline bool has_next(int64_t row, int64_t rows) {
    return PackedStep<T>::ENTRIES > 1 && row + 1 < rows;
}

template <class T>
static auto packing_rows(const T* x, int64_t rows, int64_t columns, int64_t first, int64_t steps, Unit<T>* to) {
    return loop(rows, CHUNK, [=](int64_t row, int64_t end) {
        const int64_t before = row / PackedStep<T>::ENTRIES;
        pack_panels<PANEL>(x + row * columns, columns, end - row, columns, first + before, steps, to);
    });
}

// Pack columns of B into panels, with zeros after the last one.
static auto packing_columns(const Operand& b, int64_t columns, int64_t steps, float* to) {
    const bool rows = b.across == 1;  // read in the order of memory
    const int64_t full = columns / PANEL * PANEL;
    return loop(rows ? steps : padded(columns, PANEL), rows ? STEPS_AT_ONCE : PANEL, [=](int64_t from, int64_t end) {
        if (rows) {
            for (int64_t step = from; step < end; step++)
                for (int64_t column = 0; column < full; column += LANES)
                    store(
                        to + column / PANEL * PANEL * steps + step * PANEL + column % PANEL,
                        load(b.data + step * b.along + column)
                    );
            const Operand rest = {b.data + from * b.along, 1, b.along};
            if (full < columns)
                pack_strided(rest, full, columns - full, PANEL, end - from, to + full * steps + from * PANEL);
            return;
        }
        float* panel = to + from * steps;
        int64_t step = 0;
        for (; b.along == 1 && from < full && step + LANES <= steps; step += LANES)
            for (int64_t j = 0; j < PANEL; j += LANES)
                transpose_square(b.data + (from + j) * b.across + step, b.across, panel + step * PANEL + j, PANEL);
        const Operand rest = {b.data + step * b.along, b.across, b.along};
        pack_strided(rest, from, std::min<int64_t>(PANEL, columns - from), PANEL, steps - step, panel + step * PANEL);
    });
}

#if HAS_AMX
// Pack columns of B in parts into panels, with zeros after the last one.
static auto packing_columns(const Operand& b, int64_t columns, int64_t depth, Split* to) {
    const bool rows = b.across == 1;  // read in the order of memory
    const int64_t steps = steps_of<float>(depth);
    return loop(rows ? steps : padded(columns, PANEL), rows ? STEPS_AT_ONCE : PANEL, [=](int64_t from, int64_t end) {
        for (int64_t step = from; rows && step < end; step++) {
            const float* upper = b.data + 2 * step * b.along;
            for (int64_t column = 0; column < padded(columns, PANEL); column += LANES) {
                const int64_t count = columns - column, below = 2 * step + 1 < depth ? count : 0;
                Split* panel = to + column / PANEL * PANEL * steps + step * PANEL;
                put_split(
                    read_first(upper + column, count), read_first(upper + b.along + column, below),
                    panel->parts + column % PANEL, PANEL
                );
            }
        }
        for (int64_t column = from; !rows && column < end; column += LANES)
            for (int64_t r = 0; r < steps; r += LANES) {
                const Operand at = {b.data + column * b.across + 2 * r * b.along, b.across, b.along};
                const int64_t count = std::min<int64_t>(LANES, steps - r);
                Split* panel = to + from * steps + r * PANEL;
                if (b.along == 1 && column + LANES <= columns && 2 * r + SQUARE_STEPS <= depth) {
                    pack_split_square(at.data, b.across, count, panel, column % PANEL);
                    continue;
                }
                const Square square(at, columns - column, depth - 2 * r);
                pack_split_square(square.numbers[0], SQUARE_STEPS, count, panel, column % PANEL);
            }
    });
}
#endif
