// Products of tiles with AMX: a register contains sixteen rows of sixteen sums, pairs of bfloat16 or groups of four
// bytes, and one instruction adds the product of two registers to a third.
#pragma once
#include "split.h"
#if HAS_AMX
#define AMX_SIDE 16
// Tiles of steps at a time. In parts, a panel of them fits the L1 cache, with two rows of tiles and their sums.
template <class Unit> constexpr int64_t amx_depth() { return std::is_same<Unit, Split>::value ? 2 : 8; }

// Linux permits these registers on request (arch_prctl(2), ARCH_REQ_XCOMP_PERM for XTILEDATA).
static bool amx_permitted() {
    static const bool allowed = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
    return allowed;
}

// GCC does not know that these instructions read memory: writes must precede them.
static inline void compiler_barrier() { __asm__ volatile("" ::: "memory"); }

// Rows and bytes of a row of each register: 0 to 3 contain sums, 4 and 5 rows of a, 6 and 7 a panel.
struct alignas(64) TileConfig {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};

    TileConfig(int64_t upper, int64_t lower, int64_t steps) {
        for (int i = 0; i < 8; i++) {
            const int64_t a_rows = i % 2 ? lower : upper;
            rows[i] = static_cast<uint8_t>(i < 2 ? upper : i < 4 ? lower : i < 6 ? a_rows : steps);
            bytes[i] = static_cast<uint16_t>(rows[i] == 0 ? 0 : 4 * (i == 4 || i == 5 ? steps : AMX_SIDE));
        }
    }
};

static void configure_tiles(int64_t upper, int64_t lower, int64_t steps) {
    const TileConfig config(upper, lower, steps);
    compiler_barrier();
    _tile_loadconfig(&config);
    compiler_barrier();
}

// Rows of a product's left operand, with the distance `across`; the steps of a row are adjacent.
template <class Unit>
struct TileRows {
    const Unit* data;
    int64_t across;
    TileRows at(int64_t row, int64_t step) const { return {data + row * across + step, across}; }
};
template <>
struct TileRows<Split> {
    const Pair* data;
    int64_t across, next_part;
    bool second = false;  // rows of the second operand: the product is computed transposed
    TileRows at(int64_t row, int64_t step) const { return {data + row * across + step, across, next_part, second}; }
};

// Add the product of a tile of rows, with LOWER of two, and the columns of a panel from `column` on to the sums.
template <bool LOWER, class Unit>
static inline void add_tiles(TileRows<Unit> a, const Packed<Unit>* panel, int64_t column) {
#define AMX_ADD(sum, a, panel)                                                    \
    if constexpr (std::is_same<Unit, Pair>::value) _tile_dpbf16ps(sum, a, panel); \
    else _tile_dpbsud(sum, a, panel)
    _tile_loadd(6, panel + column, PANEL * sizeof(Unit));
    _tile_loadd(4, a.data, a.across * sizeof(Unit));
    AMX_ADD(0, 4, 6);
    _tile_loadd(7, panel + column + AMX_SIDE, PANEL * sizeof(Unit));
    AMX_ADD(1, 4, 7);
    if (LOWER) {
        _tile_loadd(5, a.data + AMX_SIDE * a.across, a.across * sizeof(Unit));
        AMX_ADD(2, 5, 6);
        AMX_ADD(3, 5, 7);
    }
#undef AMX_ADD
}

// Six products of the parts of float32 numbers, in an order in which one operand stays in its registers. Exchanged
// operands have their parts multiplied in the same order, so that the transposed sums have the same bits.
template <bool LOWER>
static inline void add_tiles(TileRows<Split> a, const Split* panel, int64_t column) {
    const Pair* columns = panel->parts + column;
    const int64_t stride = PARTS * PANEL * sizeof(Pair), across = a.across * sizeof(Pair);
#define LOAD_ROWS(part)                                    \
    _tile_loadd(4, a.data + (part) * a.next_part, across); \
    if (LOWER) _tile_loadd(5, a.data + (part) * a.next_part + AMX_SIDE * a.across, across)
#define LOAD_COLUMNS(part)                            \
    _tile_loadd(6, columns + (part) * PANEL, stride); \
    _tile_loadd(7, columns + (part) * PANEL + AMX_SIDE, stride)
#define ADD_PRODUCTS()           \
    _tile_dpbf16ps(0, 4, 6);     \
    _tile_dpbf16ps(1, 4, 7);     \
    if (LOWER) {                 \
        _tile_dpbf16ps(2, 5, 6); \
        _tile_dpbf16ps(3, 5, 7); \
    }
    LOAD_ROWS(MIDDLE);
    LOAD_COLUMNS(MIDDLE);
    ADD_PRODUCTS();
    if (a.second) {
        LOAD_ROWS(HIGH);
        ADD_PRODUCTS();
        LOAD_COLUMNS(LOW);
        ADD_PRODUCTS();
        LOAD_COLUMNS(HIGH);
        ADD_PRODUCTS();
        LOAD_ROWS(MIDDLE);
        ADD_PRODUCTS();
        LOAD_ROWS(LOW);
        ADD_PRODUCTS();
        return;
    }
    LOAD_COLUMNS(HIGH);
    ADD_PRODUCTS();
    LOAD_ROWS(LOW);
    ADD_PRODUCTS();
    LOAD_ROWS(HIGH);
    ADD_PRODUCTS();
    LOAD_COLUMNS(MIDDLE);
    ADD_PRODUCTS();
    LOAD_COLUMNS(LOW);
    ADD_PRODUCTS();
#undef LOAD_ROWS
#undef LOAD_COLUMNS
#undef ADD_PRODUCTS
}

// Two adjacent tiles of sums, with LOWER two more below them, over `count` tiles of steps.
template <class Unit, bool LOWER>
static inline void amx_block(
    TileRows<Unit> a, const Packed<Unit>* panel, int64_t column, int64_t count, Number<Unit>* sums, bool begin
) {
    const int64_t row = PANEL * sizeof *sums;
    auto below = sums + AMX_SIDE * PANEL;
    compiler_barrier();
    if (begin) {
        _tile_zero(0);
        _tile_zero(1);
        if (LOWER) {
            _tile_zero(2);
            _tile_zero(3);
        }
    } else {
        _tile_loadd(0, sums, row);
        _tile_loadd(1, sums + AMX_SIDE, row);
        if (LOWER) {
            _tile_loadd(2, below, row);
            _tile_loadd(3, below + AMX_SIDE, row);
        }
    }
    for (int64_t i = 0; i < count; i++) add_tiles<LOWER>(a.at(0, i * AMX_SIDE), panel + i * AMX_SIDE * PANEL, column);
    _tile_stored(0, sums, row);
    _tile_stored(1, sums + AMX_SIDE, row);
    if (LOWER) {
        _tile_stored(2, below, row);
        _tile_stored(3, below + AMX_SIDE, row);
    }
}

// Sums [rows, PANEL] of at most two tiles of rows.
template <class Unit>
static void amx_rows(
    TileRows<Unit> a, int64_t rows, const Packed<Unit>* panel, int64_t count, int64_t steps, Number<Unit>* sums,
    bool begin
) {
    const int64_t upper = std::min<int64_t>(AMX_SIDE, rows), lower = rows - upper;
    const bool full_tiles = upper == AMX_SIDE && lower % AMX_SIDE == 0 && steps == AMX_SIDE;
    if (!full_tiles) configure_tiles(upper, lower, steps);
    for (int64_t j = 0; j < PANEL; j += 2 * AMX_SIDE) {
        if (lower) amx_block<Unit, true>(a, panel, j, count, sums + j, begin);
        else amx_block<Unit, false>(a, panel, j, count, sums + j, begin);
    }
    if (!full_tiles) configure_tiles(AMX_SIDE, AMX_SIDE, AMX_SIDE);
}

// Sums [rows, PANEL] over all steps of rows and a panel, with `begin` not added to earlier sums; the registers have
// their usual shape.
template <class Unit>
static void amx_panel(
    TileRows<Unit> a, int64_t rows, const Packed<Unit>* panel, int64_t steps, Number<Unit>* sums, bool begin = true
) {
    for (int64_t r = 0; r < steps;) {
        const int64_t count = std::min<int64_t>(amx_depth<Unit>(), (steps - r) / AMX_SIDE);
        const int64_t depth = count ? AMX_SIDE : steps - r;
        for (int64_t row = 0; row < rows; row += 2 * AMX_SIDE)
            amx_rows<Unit>(
                a.at(row, r), std::min<int64_t>(2 * AMX_SIDE, rows - row), panel + r * PANEL,
                std::max<int64_t>(1, count), depth, sums + row * PANEL, begin && !r
            );
        r += count ? count * AMX_SIDE : depth;
    }
}
#endif
