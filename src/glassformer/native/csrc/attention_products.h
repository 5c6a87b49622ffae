// Products of attention over full sequences: of float32, or of pairs of bfloat16 where the processor multiplies those, in
// tiles with AMX.
#pragma once
#include "gemm.h"
#define QUERY_BLOCK (2 * LANES)  // at most so many queries have their scores computed at once

// Operands of products of T consist of these: numbers, or pairs of them.
#if HAS_BFLOAT16
template <class T> using AttentionUnit = std::conditional_t<std::is_same<T, uint16_t>::value, Pair, float>;
#else
template <class T> using AttentionUnit = float;
#endif

// With TILES products are computed in tiles. A unit has ENTRIES numbers. Rows, columns and steps of a product are
// multiples of ROWS, COLUMNS and STEPS, numbers of keys of KEYS.
template <class Unit> struct Granularity {
    enum { TILES = 0, ENTRIES = 1, ROWS = 1, COLUMNS = LANES, STEPS = 1, KEYS = 1 };
};
template <> struct Granularity<Pair> {
#if HAS_AMX
    enum { TILES = 1, ENTRIES = 2, ROWS = 2 * AMX_SIDE, COLUMNS = 2 * AMX_SIDE, STEPS = AMX_SIDE, KEYS = ROWS };
#else
    enum { TILES = 0, ENTRIES = 2, ROWS = 1, COLUMNS = LANES, STEPS = 1, KEYS = 2 };
#endif
};

// Steps of a sum over `count` numbers.
template <class Unit>
static int64_t steps_of_numbers(int64_t count) {
    typedef Granularity<Unit> Grain;
    return padded((count + Grain::ENTRIES - 1) / Grain::ENTRIES, Grain::STEPS);
}

// Columns of a product's right operand: [steps, stride].
template <class Unit>
struct ColumnsOf {
    const Unit* data;
    int64_t stride;
};

// Rows that have their steps side by side. OperandOf::along is the distance between tiles of steps here.
template <class Unit>
static OperandOf<Unit> adjacent_steps(const Unit* rows, int64_t stride) {
    return {rows, stride, Granularity<Unit>::STEPS};
}

// Rows of the weights of QUERY_BLOCK queries, from `key` on. A step is a unit of keys, and the layout is
// [steps, QUERY_BLOCK], or tiles, [keys / 32, QUERY_BLOCK, AMX_SIDE].
template <class Unit>
static OperandOf<Unit> weights_at(const Unit* weights, int64_t key) {
#if HAS_AMX
    if (Granularity<Unit>::TILES) return {weights + key * AMX_SIDE, AMX_SIDE, QUERY_BLOCK * AMX_SIDE};
#endif
    return {weights + key / Granularity<Unit>::ENTRIES * QUERY_BLOCK, 1, QUERY_BLOCK};
}

// Values of a key, and in pairs of the next one, in each lane.
template <class Unit, class Values>
static inline Floats unit_of(int64_t key, Values values) {
    if constexpr (Granularity<Unit>::ENTRIES == 1) return values(key);
    else {
        const Ints first = rounded_bits(values(key));
        return (Floats)(first | rounded_bits(values(key + 1)) << 16);
    }
}

// Write units(key), of the queries of a vector from `lane` on, for each unit of keys from `low` to `high`.
template <class Unit, class Units>
static inline void put_weight_units(int64_t low, int64_t high, int64_t lane, Unit* to, Units units) {
    auto numbers = reinterpret_cast<float*>(to);
#if HAS_AMX
    if constexpr (Granularity<Unit>::TILES) {
        alignas(64) float columns[AMX_SIDE * LANES];
        for (int64_t key = low; key < high; key += 2 * AMX_SIDE) {
            for (int64_t pair = 0; pair < AMX_SIDE; pair++) store(columns + pair * LANES, units(key + 2 * pair));
            transpose_square(columns, LANES, numbers + (key + lane) * AMX_SIDE, AMX_SIDE);
        }
        return;
    }
#endif
    enum { ENTRIES = Granularity<Unit>::ENTRIES };
    for (int64_t key = low; key < high; key += ENTRIES) store(numbers + key / ENTRIES * QUERY_BLOCK + lane, units(key));
}

// Like add_products, but for columns that are not packed: a variable distance between steps would cost packed ones 5 %.
template <bool ADD, int ROWS, int VECTORS, class Unit>
NOINLINE void multiply_unit_rows(OperandOf<Unit> a, ColumnsOf<Unit> b, int64_t steps, float* to, int64_t to_stride) {
    typedef typename Registers<Unit>::Sum Sum;
    Sum sums[ROWS][VECTORS];
    UNROLL_FOR (int row = 0; row < ROWS; row++)
        UNROLL_FOR (int j = 0; j < VECTORS; j++)
            sums[row][j] = ADD ? (Sum)load(to + row * to_stride + j * LANES) : Sum{};
    for (int64_t step = 0; step < steps; step++, a.data += a.along, b.data += b.stride) {
        typename Registers<Unit>::Entries columns[VECTORS];
        UNROLL_FOR (int j = 0; j < VECTORS; j++) columns[j] = entries_at(b.data + j * LANES);
        UNROLL_FOR (int row = 0; row < ROWS; row++) {
            const auto value = broadcast(a.data[row * a.across]);
            UNROLL_FOR (int j = 0; j < VECTORS; j++) sums[row][j] = add_product(sums[row][j], value, columns[j]);
        }
    }
    UNROLL_FOR (int row = 0; row < ROWS; row++)
        UNROLL_FOR (int j = 0; j < VECTORS; j++) store(to + row * to_stride + j * LANES, (Floats)sums[row][j]);
}

// At most ROWS rows.
template <bool ADD, int VECTORS, int ROWS, class Unit>
static void multiply_rows_up_to(
    OperandOf<Unit> a, int64_t rows, ColumnsOf<Unit> b, int64_t steps, float* to, int64_t to_stride
) {
    if (rows == ROWS) multiply_unit_rows<ADD, ROWS, VECTORS>(a, b, steps, to, to_stride);
    else if constexpr (ROWS > 1) multiply_rows_up_to<ADD, VECTORS, ROWS - 1>(a, rows, b, steps, to, to_stride);
}

template <bool ADD, int VECTORS, class Unit>
static void multiply_columns(
    OperandOf<Unit> a, int64_t rows, ColumnsOf<Unit> b, int64_t steps, float* to, int64_t to_stride
) {
    enum { ROWS = LANES == 16 ? 12 : 2 * TALL / VECTORS };  // as many sums as there are registers for
    while (rows > 0) {  // the last two groups have equal sizes: few sums would wait for their predecessors
        const int64_t count = rows >= 2 * ROWS ? ROWS : rows > ROWS ? (rows + 1) / 2 : rows;
        multiply_rows_up_to<ADD, VECTORS, ROWS>(a, count, b, steps, to, to_stride);
        rows -= count, a.data += count * a.across, to += count * to_stride;
    }
}

// to [rows, columns] = a [rows, steps] · b [steps, columns]; with ADD, added to `to`.
template <bool ADD, class Unit>
static void multiply_units(
    OperandOf<Unit> a, int64_t rows, ColumnsOf<Unit> b, int64_t columns, int64_t steps, float* to, int64_t to_stride
) {
    for (; columns > LANES; columns -= 2 * LANES, b.data += 2 * LANES, to += 2 * LANES)
        multiply_columns<ADD, 2>(a, rows, b, steps, to, to_stride);
    if (columns > 0) multiply_columns<ADD, 1>(a, rows, b, steps, to, to_stride);
}

// Registers of products of this unit, as long as they are computed.
template <class Unit> struct ProductRegisters {
    ProductRegisters() {}  // so that compilers do not call the variable unused
};

#if HAS_AMX
template <> struct ProductRegisters<Pair> {
    ProductRegisters() { configure_tiles(AMX_SIDE, AMX_SIDE, AMX_SIDE); }
    ~ProductRegisters() { _tile_release(); }
};

// to [32, 32] = a [32, 16 · count] · b [16 · count, 32]; with ADD, added to `to`.
template <bool ADD>
static inline void multiply_square(OperandOf<Pair> a, ColumnsOf<Pair> b, int64_t count, float* to, int64_t to_stride) {
    const int64_t row = to_stride * sizeof(float);
    float* below = to + AMX_SIDE * to_stride;
    compiler_barrier();
    if (ADD) {
        _tile_loadd(0, to, row);
        _tile_loadd(1, to + AMX_SIDE, row);
        _tile_loadd(2, below, row);
        _tile_loadd(3, below + AMX_SIDE, row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t i = 0; i < count; i++, a.data += a.along, b.data += AMX_SIDE * b.stride) {
        _tile_loadd(6, b.data, b.stride * sizeof(Pair));
        _tile_loadd(4, a.data, a.across * sizeof(Pair));
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b.data + AMX_SIDE, b.stride * sizeof(Pair));
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a.data + AMX_SIDE * a.across, a.across * sizeof(Pair));
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, row);
    _tile_stored(1, to + AMX_SIDE, row);
    _tile_stored(2, below, row);
    _tile_stored(3, below + AMX_SIDE, row);
    compiler_barrier();
}

// The same product in tiles.
template <bool ADD>
static void multiply_units(
    OperandOf<Pair> a, int64_t rows, ColumnsOf<Pair> b, int64_t columns, int64_t steps, float* to, int64_t to_stride
) {
    for (int64_t row = 0; row < rows; row += 2 * AMX_SIDE)
        for (int64_t column = 0; column < columns; column += 2 * AMX_SIDE)
            multiply_square<ADD>(
                {a.data + row * a.across, a.across, a.along}, {b.data + column, b.stride}, steps / AMX_SIDE,
                to + row * to_stride + column, to_stride
            );
}
#endif
