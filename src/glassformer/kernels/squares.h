// Products in bfloat16 by the matrix instructions of processors that have them (AMX): a register holds sixteen rows, of
// sixteen sums or of sixteen pairs each, and one instruction adds the product of two of them to a third.
#pragma once
#include "tiles.h"
#if HAS_BFLOAT16 && defined(__AMX_BF16__) && defined(__linux__)
#define HAS_SQUARES 1
#include <sys/syscall.h>
#include <unistd.h>
#else
#define HAS_SQUARES 0
#endif

#if HAS_SQUARES
#define SIDE 16

// Linux gives a process these registers when it asks for them (arch_prctl(2), ARCH_REQ_XCOMP_PERM for XTILEDATA).
static bool squares_allowed() { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

// GCC does not know that these instructions read memory: what was written must be there before.
static inline void all_written() { __asm__ volatile("" ::: "memory"); }

// How many rows, and bytes of a row, each register is used for: 0 to 3 hold sums, 4 and 5 rows of a, 6 and 7 a panel.
struct alignas(64) Shapes {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};

    Shapes(int64_t upper, int64_t lower, int64_t steps) {
        for (int i = 0; i < 8; i++) {
            const int64_t of_a = i % 2 ? lower : upper;
            rows[i] = static_cast<uint8_t>(i < 2 ? upper : i < 4 ? lower : i < 6 ? of_a : steps);
            bytes[i] = static_cast<uint16_t>(rows[i] == 0 ? 0 : 4 * (i == 4 || i == 5 ? steps : SIDE));
        }
    }
};

static void shape(int64_t upper, int64_t lower, int64_t steps) {
    const Shapes shapes(upper, lower, steps);
    all_written();
    _tile_loadconfig(&shapes);
}

// Two squares of sums beside each other, and two below them if there are that many rows, over `count` times `steps` steps.
template <bool LOWER>
static inline void add_squares(
    const Pair* a, int64_t across, const Pair* panel, int64_t count, float* sums, bool begin
) {
    const int64_t row = PANEL * sizeof(float);
    float* below = sums + SIDE * PANEL;
    all_written();
    if (begin) {
        _tile_zero(0);
        _tile_zero(1);
        if (LOWER) {
            _tile_zero(2);
            _tile_zero(3);
        }
    } else {
        _tile_loadd(0, sums, row);
        _tile_loadd(1, sums + SIDE, row);
        if (LOWER) {
            _tile_loadd(2, below, row);
            _tile_loadd(3, below + SIDE, row);
        }
    }
    for (int64_t i = 0; i < count; i++, a += SIDE, panel += SIDE * PANEL) {
        _tile_loadd(6, panel, PANEL * sizeof(Pair));
        _tile_loadd(4, a, across * sizeof(Pair));
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, panel + SIDE, PANEL * sizeof(Pair));
        _tile_dpbf16ps(1, 4, 7);
        if (LOWER) {
            _tile_loadd(5, a + SIDE * across, across * sizeof(Pair));
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, row);
    _tile_stored(1, sums + SIDE, row);
    if (LOWER) {
        _tile_stored(2, below, row);
        _tile_stored(3, below + SIDE, row);
    }
}

// The sums [rows, PANEL] of at most two squares of rows below each other.
static void add_rows(
    const Pair* a, int64_t across, int64_t rows, const Pair* panel, int64_t count, int64_t steps, float* sums, bool begin
) {
    const int64_t upper = std::min<int64_t>(SIDE, rows), lower = rows - upper;
    const bool whole = lower == SIDE && steps == SIDE;
    if (!whole) shape(upper, lower, steps);
    for (int64_t j = 0; j < PANEL; j += 2 * SIDE) {
        if (lower) add_squares<true>(a, across, panel + j, count, sums + j, begin);
        else add_squares<false>(a, across, panel + j, count, sums + j, begin);
    }
    if (!whole) shape(SIDE, SIDE, SIDE);
}
#endif
