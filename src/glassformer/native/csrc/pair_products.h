// Products of attention in bfloat16, with instructions that multiply pairs: in tiles with AMX, else in vectors.
#pragma once
#include "gemm.h"
#if HAS_BFLOAT16
#define QUERY_BLOCK 32  // at most so many queries have their scores computed at once
// Numbers of rows, of columns and of steps of a product are multiples of these, and numbers of keys of PAIR_KEYS.
#if HAS_AMX
#define PAIR_ROWS (2 * AMX_SIDE)
#define PAIR_COLUMNS (2 * AMX_SIDE)
#define PAIR_STEPS AMX_SIDE
#define PAIR_KEYS PAIR_ROWS
#else
#define PAIR_ROWS 1
#define PAIR_COLUMNS LANES
#define PAIR_STEPS 1
#define PAIR_KEYS 2
#endif

// Steps of a sum over `count` numbers.
static int64_t pair_steps(int64_t count) { return padded(padded(count, 2) / 2, PAIR_STEPS); }

// Columns of a product's right operand: [steps, stride].
struct PairColumns {
    const Pair* data;
    int64_t stride;
};

#if HAS_AMX
// The shape of the registers, as long as products are computed.
struct PairRegisters {
    PairRegisters() { configure_tiles(AMX_SIDE, AMX_SIDE, AMX_SIDE); }
    ~PairRegisters() { _tile_release(); }
};

// Rows that have their steps side by side. OperandOf::along is the distance between tiles of steps here.
static OperandOf<Pair> adjacent_steps(const Pair* rows, int64_t stride) { return {rows, stride, AMX_SIDE}; }

// Rows of the weights of QUERY_BLOCK queries, from `key` on. A step is a pair of keys, and the layout is tiles,
// [keys / 32, QUERY_BLOCK, AMX_SIDE].
static OperandOf<Pair> weights_at(const Pair* weights, int64_t key) {
    return {weights + key * AMX_SIDE, AMX_SIDE, QUERY_BLOCK * AMX_SIDE};
}

// Write pairs(key), of the queries of a vector from `lane` on, for each pair of keys from `low` to `high`.
template <class Pairs>
static inline void put_weight_pairs(int64_t low, int64_t high, int64_t lane, Pair* to, Pairs pairs) {
    alignas(64) Pair columns[AMX_SIDE * LANES];
    for (int64_t key = low; key < high; key += 2 * AMX_SIDE) {
        for (int64_t pair = 0; pair < AMX_SIDE; pair++)
            store(reinterpret_cast<int32_t*>(columns + pair * LANES), pairs(key + 2 * pair));
        transpose_square(
            reinterpret_cast<const float*>(columns), LANES, reinterpret_cast<float*>(to + (key + lane) * AMX_SIDE),
            AMX_SIDE
        );
    }
}

// to [32, 32] = a [32, 16 · count] · b [16 · count, 32]; with ADD, added to `to`.
template <bool ADD>
static inline void multiply_square(OperandOf<Pair> a, PairColumns b, int64_t count, float* to, int64_t to_stride) {
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

// to [rows, columns] = a [rows, steps] · b [steps, columns]; with ADD, added to `to`.
template <bool ADD>
static void multiply_pairs(
    OperandOf<Pair> a, int64_t rows, PairColumns b, int64_t columns, int64_t steps, float* to, int64_t to_stride
) {
    for (int64_t row = 0; row < rows; row += PAIR_ROWS)
        for (int64_t column = 0; column < columns; column += PAIR_COLUMNS)
            multiply_square<ADD>(
                {a.data + row * a.across, a.across, a.along}, {b.data + column, b.stride}, steps / AMX_SIDE,
                to + row * to_stride + column, to_stride
            );
}
#else
struct PairRegisters {
    PairRegisters() {}  // so that compilers do not call the variable unused
};

static OperandOf<Pair> adjacent_steps(const Pair* rows, int64_t stride) { return {rows, stride, 1}; }

// The layout is [keys / 2, QUERY_BLOCK].
static OperandOf<Pair> weights_at(const Pair* weights, int64_t key) {
    return {weights + key / 2 * QUERY_BLOCK, 1, QUERY_BLOCK};
}

template <class Pairs>
static inline void put_weight_pairs(int64_t low, int64_t high, int64_t lane, Pair* to, Pairs pairs) {
    for (int64_t key = low; key < high; key += 2)
        store(reinterpret_cast<int32_t*>(to + key / 2 * QUERY_BLOCK + lane), pairs(key));
}

// Like add_products, but for columns that are not packed: a variable distance between steps would cost packed ones 5 %.
template <bool ADD, int ROWS, int VECTORS>
NOINLINE void multiply_pair_rows(OperandOf<Pair> a, PairColumns b, int64_t steps, float* to, int64_t to_stride) {
    PairSum sums[ROWS][VECTORS];
    UNROLL_FOR (int row = 0; row < ROWS; row++)
        UNROLL_FOR (int j = 0; j < VECTORS; j++)
            sums[row][j] = ADD ? (PairSum)load(to + row * to_stride + j * LANES) : PairSum{};
    for (int64_t step = 0; step < steps; step++, a.data += a.along, b.data += b.stride) {
        PairEntries columns[VECTORS];
        UNROLL_FOR (int j = 0; j < VECTORS; j++) columns[j] = entries_at(b.data + j * LANES);
        UNROLL_FOR (int row = 0; row < ROWS; row++) {
            const PairEntries value = broadcast(a.data[row * a.across]);
            UNROLL_FOR (int j = 0; j < VECTORS; j++) sums[row][j] = add_product(sums[row][j], value, columns[j]);
        }
    }
    UNROLL_FOR (int row = 0; row < ROWS; row++)
        UNROLL_FOR (int j = 0; j < VECTORS; j++) store(to + row * to_stride + j * LANES, (Floats)sums[row][j]);
}

// At most ROWS rows.
template <bool ADD, int VECTORS, int ROWS>
static void multiply_rows_up_to(
    OperandOf<Pair> a, int64_t rows, PairColumns b, int64_t steps, float* to, int64_t to_stride
) {
    if (rows == ROWS) multiply_pair_rows<ADD, ROWS, VECTORS>(a, b, steps, to, to_stride);
    else if constexpr (ROWS > 1) multiply_rows_up_to<ADD, VECTORS, ROWS - 1>(a, rows, b, steps, to, to_stride);
}

template <bool ADD, int VECTORS>
static void multiply_pair_columns(
    OperandOf<Pair> a, int64_t rows, PairColumns b, int64_t steps, float* to, int64_t to_stride
) {
    enum { ROWS = LANES == 16 ? 12 : 10 };  // their sums and factors fit the 32 registers
    while (rows > 0) {  // the last two groups have equal sizes: few sums would wait for their predecessors
        const int64_t count = rows >= 2 * ROWS ? ROWS : rows > ROWS ? (rows + 1) / 2 : rows;
        multiply_rows_up_to<ADD, VECTORS, ROWS>(a, count, b, steps, to, to_stride);
        rows -= count, a.data += count * a.across, to += count * to_stride;
    }
}

// to [rows, columns] = a [rows, steps] · b [steps, columns]; with ADD, added to `to`.
template <bool ADD>
static void multiply_pairs(
    OperandOf<Pair> a, int64_t rows, PairColumns b, int64_t columns, int64_t steps, float* to, int64_t to_stride
) {
    for (; columns > LANES; columns -= 2 * LANES, b.data += 2 * LANES, to += 2 * LANES)
        multiply_pair_columns<ADD, 2>(a, rows, b, steps, to, to_stride);
    if (columns > 0) multiply_pair_columns<ADD, 1>(a, rows, b, steps, to, to_stride);
}
#endif
#endif
