// C = A · B + b for training, in float32, for matrices of any size and strides, on all cores.
#include "api.h"
#include "split_products.h"
#include "thread_pool.h"

#if HAS_AMX
#define CACHED_STEPS 512                                             // steps of a block of rows of A
#define CACHED_ENTRIES(many_rows) ((many_rows) ? 1 << 17 : 1 << 19)  // entries of B
#else
#define CACHED_STEPS 1024
#define CACHED_ENTRIES(many_rows) (1 << 19)
#endif
#define FEW_ENTRIES (1 << 16)  // of B that each thread packs for itself, for MANY_ROWS or more
#define MANY_ROWS 128
#if HAS_AMX
#define ROW_TILE (2 * AMX_SIDE)
#define PRODUCT_ROWS (4 * ROW_TILE)  // at a time
#else
#define ROW_TILE TALL
#define PRODUCT_ROWS FULL_TILE_ROWS
#endif

// Columns and steps of B that are packed at a time.
struct Packing {
    int64_t first_column, columns, first_step, steps;
    bool transposed;  // the operands are exchanged, and the result is stored transposed
};

// Store sums of `rows` rows and `columns` columns of a panel transposed; with ADD, add them to the results before. Sums
// are read in full vectors of rows.
static void put_transposed(const float* sums, int64_t rows, int64_t columns, bool add, float* to, int64_t stride) {
    alignas(64) float square[LANES][LANES];
    for (int64_t row = 0; row < rows; row += LANES, sums += LANES * PANEL)
        for (int64_t column = 0; column < columns; column += LANES) {
            transpose_square(sums + column, PANEL, square[0], LANES);
            const int64_t count = std::min<int64_t>(LANES, rows - row);
            for (int64_t i = 0; i < std::min<int64_t>(LANES, columns - column); i++) {
                float* at = to + (column + i) * stride + row;
                if (count == LANES) store(at, load(square[i]) + (add ? load(at) : Floats{}));
                else
                    for (int64_t j = 0; j < count; j++) at[j] = square[i][j] + (add ? at[j] : 0.0f);
            }
        }
}

#if HAS_AMX
// `count` rows of the result from `first` on.
static void multiply_rows(
    const MatrixProduct& p, const Packing& packing, const Split* packed, int64_t first, int64_t count
) {
    const Operand a = {p.a.data + first * p.a.across + packing.first_step * p.a.along, p.a.across, p.a.along};
    auto rows = split_rows(a, count, packing.steps);
    rows.second = packing.transposed;
    multiply_tiles(rows, count, packed, packing.columns, steps_of<float>(packing.steps), [&](int64_t at, float* sums) {
        const int64_t column = packing.first_column + at, width = std::min<int64_t>(PANEL, packing.columns - at);
        if (packing.transposed)
            return put_transposed(
                sums, count, width, packing.first_step > 0, p.result + column * p.rows + first, p.rows
            );
        const float* bias = p.bias ? p.bias + column : nullptr;
        float* to = p.result + first * p.columns + column;
        for (int64_t row = 0; row < count; row++, to += p.columns, sums += PANEL)
            for (int64_t j = 0; j < width; j += LANES) {
                const int64_t lanes = width - j;
                const Floats before = packing.first_step ? read_first(to + j, lanes)
                                      : bias             ? read_first(bias + j, lanes)
                                                         : Floats{};
                write_first(to + j, lanes, load(sums + j) + before);
            }
    });
}
#else
// Pack rows of A, TALL rows at a time: their entries for one step become adjacent, so a tile reads full cache lines.
static void pack_rows(const Operand& a, int64_t rows, int64_t steps, float* to) {
    const int64_t full = a.across == 1 ? rows / TALL * TALL : 0;
    for (int64_t step = 0; full && step < steps; step++) {
        const float* from = a.data + step * a.along;
        for (int64_t row = 0; row < full; row += TALL) {
            __builtin_prefetch(from + 8 * a.along + row);  // processors prefetch within a page; a step may be a page
            memcpy(to + row * steps + step * TALL, from + row, TALL * sizeof(float));
        }
    }
    for (int64_t row = full; row < rows; row += TALL)
        pack_strided(a, row, std::min<int64_t>(TALL, rows - row), TALL, steps, to + row * steps);
}

// Sums over `depth` steps of ROWS rows of a and a panel, plus the bias, or plus the previous results.
template <int ROWS>
NOINLINE void multiply_tile(
    Operand a, const float* panel, int64_t depth, Ahead<float> ahead, const float* bias, bool add, float* result,
    int64_t stride
) {
    // The lines of the results arrive during the products; otherwise the stores wait for a third of the time.
    UNROLL_FOR (int row = 0; row < ROWS; row++)
        UNROLL_FOR (int j = 0; j < WIDE; j++) __builtin_prefetch(result + row * stride + j * LANES, 1);
    Floats totals[ROWS][WIDE] = {};
    add_products<ROWS>(a, panel, depth, ahead, 0, totals);
    UNROLL_FOR (int j = 0; j < WIDE; j++) {
        const Floats first = bias && !add ? load(bias + j * LANES) : Floats{};
        UNROLL_FOR (int row = 0; row < ROWS; row++) {
            float* to = result + row * stride + j * LANES;
            store(to, totals[row][j] + (add ? load(to) : first));
        }
    }
}

// Store sums of the first `width` columns of a panel, plus the bias, or plus the previous results.
static void put_narrow(
    const float* sums, int64_t rows, int64_t width, const float* bias, bool add, float* to, int64_t stride
) {
    for (int64_t row = 0; row < rows; row++, to += stride, sums += PANEL)
        for (int64_t j = 0; j < width; j++) to[j] = sums[j] + (add ? to[j] : bias ? bias[j] : 0.0f);
}

// `count` rows of the result from `first` on; A is packed unless its rows are contiguous.
static void multiply_rows(
    const MatrixProduct& p, const Packing& packing, const float* packed, int64_t first, int64_t count
) {
    const Operand a = {p.a.data + first * p.a.across + packing.first_step * p.a.along, p.a.across, p.a.along};
    const float* tiles = nullptr;
    if (a.along != 1) {
        auto rows = workspace<float>(BLOCK_INPUT, packing.steps * padded(count, TALL));
        pack_rows(a, count, packing.steps, rows);
        tiles = rows;
    }
    static_assert(PRODUCT_ROWS % LANES == 0, "full vectors of rows");
    float sums[PRODUCT_ROWS * PANEL];
    const bool add = packing.first_step > 0;
    for (int64_t at = 0; at < packing.columns; at += PANEL) {
        const int64_t column = packing.first_column + at, width = std::min<int64_t>(PANEL, packing.columns - at);
        const float* panel = packed + at * packing.steps;
        const float* bias = p.bias ? p.bias + column : nullptr;
        float* to = p.result + first * p.columns + column;
        const bool direct = width == PANEL && !packing.transposed;
        for_each_tile(count, [&](auto height, int64_t row) {
            constexpr int rows = decltype(height)::value;
            const Operand tile = tiles ? Operand{tiles + row * packing.steps, 1, TALL}
                                       : Operand{a.data + row * a.across, a.across, a.along};
            const auto ahead = steps_to_fetch(panel, packing.steps, row, count);
            if (direct)
                multiply_tile<rows>(tile, panel, packing.steps, ahead, bias, add, to + row * p.columns, p.columns);
            else multiply_tile<rows>(tile, panel, packing.steps, ahead, nullptr, false, sums + row * PANEL, PANEL);
        });
        if (packing.transposed) put_transposed(sums, count, width, add, p.result + column * p.rows + first, p.rows);
        else if (!direct) put_narrow(sums, count, width, bias, add, to, p.columns);
    }
}

#endif

// Columns and steps of B for all rows. All threads pack them together, or, if they are few, each thread for itself:
// waiting for the others, and fetching from their caches, would take longer.
static void multiply_packed(const MatrixProduct& p, const Packing& packing) {
    const Operand b = {
        p.b.data + packing.first_column * p.b.across + packing.first_step * p.b.along, p.b.across, p.b.along
    };
    const int64_t entries = padded(packing.columns, PANEL) * steps_of<float>(packing.steps);
    const auto pack_to = [&](Unit<float>* to) { return packing_columns(b, packing.columns, packing.steps, to); };
    const Unit<float>* shared = nullptr;
    if (entries > FEW_ENTRIES || p.rows < MANY_ROWS * p.threads) {
        auto packed = workspace<Unit<float>>(WEIGHTS, entries);
        parallel(p.threads, pack_to(packed));
        shared = packed;
    }
    static std::atomic<uint64_t> last_packing{0};
    const uint64_t number = ++last_packing;
    // Nearly equal numbers of rows for all threads, at most PRODUCT_ROWS each.
    const int64_t tiles = ceil_div(p.rows, ROW_TILE);
    const int64_t blocks = ceil_div(p.rows, PRODUCT_ROWS * p.threads) * p.threads;
    auto first_row = [&](int64_t block) { return std::min(p.rows, block * tiles / blocks * ROW_TILE); };
    parallel_for(p.threads, blocks, 1, [&](int64_t block, int64_t) {
        thread_local uint64_t packed_number = 0;
        const Unit<float>* packed = shared;
        if (!packed) {
            auto own = workspace<Unit<float>>(WEIGHTS, entries);
            if (packed_number != number) parallel(1, pack_to(own));
            packed_number = number;
            packed = own;
        }
        const int64_t first = first_row(block);
        multiply_rows(p, packing, packed, first, first_row(block + 1) - first);
    });
}

// Multiply all rows by the columns of B that fit the cache before the next columns.
static void multiply_blocks(const MatrixProduct& p, bool transposed) {
    const int64_t depth_blocks = std::max<int64_t>(1, ceil_div(p.depth, CACHED_STEPS));
    const int64_t depth = ceil_div(p.depth, depth_blocks);
    const int64_t entries = CACHED_ENTRIES(p.rows > 4 * PRODUCT_ROWS * p.threads);
    const int64_t cached_columns = entries / std::max<int64_t>(1, depth) / PANEL * PANEL;
    const int64_t columns_at_once = std::min<int64_t>(padded(p.columns, PANEL), cached_columns);
    for (int64_t column = 0; column < p.columns; column += columns_at_once)
        for (int64_t block = 0; block < depth_blocks; block++) {
            const int64_t step = block * depth, columns = std::min(columns_at_once, p.columns - column);
            multiply_packed(p, {column, columns, step, std::min(depth, p.depth - step), transposed});
        }
}

static void multiply(const MatrixProduct& p) {
    // Gradients of weights with more columns than rows: the packed operand is read once for each block of rows. The
    // sums have the same bits.
    if (p.a.along != 1 && p.a.across == 1 && !p.bias && p.columns > p.rows)
        return multiply_blocks({p.columns, p.rows, p.depth, p.b, p.a, nullptr, p.result, p.threads}, true);
    multiply_blocks(p, false);
}

API int32_t multiply_matrices(const MatrixProduct* product) {
    return guarded([&] { multiply(*product); });
}
