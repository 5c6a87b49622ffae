// The inner loop of every product in float32: some rows of one matrix by a packed panel of the other.
#pragma once
#include "vectors.h"
#include <type_traits>

#if LANES == 16
#define WIDE 4
#define TALL 6
#else
#define WIDE 2
#define TALL 5
#endif
#define PANEL (WIDE * LANES)

static inline int64_t padded(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

// A matrix of a product: entry i of step r of the sum lies at data[i · across + r · along].
struct Operand {
    const float* data;
    int64_t across, along;
};

// The sums stay in registers for the whole loop, hence a function of its own: where other calls follow, compilers keep
// them in memory, at half the speed.
#define ALONE __attribute__((noinline)) static

// ROWS × PANEL sums over `depth` entries of a and of a panel, added to `sums`.
template <int ROWS>
ALONE void add_block(Operand a, const float* panel, int64_t depth, float* sums) {
    Floats kept[ROWS][WIDE];
    UNROLL for (int row = 0; row < ROWS; row++)
        UNROLL for (int j = 0; j < WIDE; j++) kept[row][j] = load(sums + row * PANEL + j * LANES);
    for (int64_t r = 0; r < depth; r++, panel += PANEL, a.data += a.along) {
        Floats columns[WIDE];
        UNROLL for (int j = 0; j < WIDE; j++) columns[j] = load(panel + j * LANES);
        UNROLL for (int row = 0; row < ROWS; row++) {
            const Floats value = all(a.data[row * a.across]);
            UNROLL for (int j = 0; j < WIDE; j++) kept[row][j] += value * columns[j];
        }
    }
    UNROLL for (int row = 0; row < ROWS; row++)
        UNROLL for (int j = 0; j < WIDE; j++) store(sums + row * PANEL + j * LANES, kept[row][j]);
}

// work(height, row) for all of `rows`: as many as possible TALL at a time, then the rest at once.
template <class Work>
static inline void in_tiles(int64_t rows, Work work) {
    int64_t row = 0;
    for (; row + TALL <= rows; row += TALL) work(std::integral_constant<int, TALL>{}, row);
    switch (rows - row) {
        case 5: work(std::integral_constant<int, 5>{}, row); break;
        case 4: work(std::integral_constant<int, 4>{}, row); break;
        case 3: work(std::integral_constant<int, 3>{}, row); break;
        case 2: work(std::integral_constant<int, 2>{}, row); break;
        case 1: work(std::integral_constant<int, 1>{}, row); break;
    }
}
