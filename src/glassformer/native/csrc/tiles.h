// The inner loop of every product: some rows of one matrix by a packed panel of the other.
//
// In float32 a step of the sum has one entry, in bfloat16 a pair of them, which processors multiply and add at once.
#pragma once
#include "vectors.h"
#include <type_traits>
#if defined(__AVX512BF16__)
#define HAS_BFLOAT16 1
#else
#define HAS_BFLOAT16 0
#endif

#if LANES == 16
#define WIDE 4
#define TALL 6
#else
#define WIDE 2
#define TALL 5
#endif
#define PANEL (WIDE * LANES)

static inline int64_t padded(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

// A matrix of a product: what step r of the sum takes from entry i lies at data[i · across + r · along].
template <class Unit>
struct OperandOf {
    const Unit* data;
    int64_t across, along;
};
typedef OperandOf<float> Operand;
typedef uint32_t Pair __attribute__((may_alias));

// What a product takes of a row for one step of the sum.
template <class T> struct Step { typedef float Unit; enum { ENTRIES = 1 }; };
template <> struct Step<uint16_t> { typedef Pair Unit; enum { ENTRIES = 2 }; };

// What a sum and what is multiplied are kept in; compilers keep the former in registers only in the type that the
// instruction takes.
template <class Unit> struct Registers { typedef Floats Sum, Entries; };
static inline Floats entries_at(const float* panel) { return load(panel); }
static inline Floats in_all_lanes(float value) { return all(value); }
static inline Floats add_product(Floats sum, Floats value, Floats column) { return sum + value * column; }

#if HAS_BFLOAT16
template <> struct Registers<Pair> { typedef __m512 Sum; typedef __m512bh Entries; };
static inline __m512bh entries_at(const Pair* panel) { return (__m512bh)_mm512_loadu_si512(panel); }
static inline __m512bh in_all_lanes(Pair value) { return (__m512bh)_mm512_set1_epi32(static_cast<int32_t>(value)); }
static inline __m512 add_product(__m512 sum, __m512bh value, __m512bh column) { return _mm512_dpbf16_ps(sum, column, value); }
#endif

// Asks for what comes some steps later: the first processors with matrix instructions wait for the second level of their
// cache otherwise, and lose a tenth of their speed. Others fetch ahead by themselves, or it was not measured on them.
template <class Unit>
static inline void fetch_ahead(const OperandOf<Unit>& a, const Unit* panel) {
#if defined(__AMX_TILE__)
    UNROLL for (int j = 0; j < WIDE; j++) __builtin_prefetch(panel + 4 * PANEL + j * LANES);
    __builtin_prefetch(a.data + 32 * a.along);
#else
    (void)a, (void)panel;
#endif
}

// The sums stay in registers for the whole loop, hence a function of its own: where other calls follow, compilers keep
// them in memory, at half the speed.
#define ALONE __attribute__((noinline)) static

// ROWS × PANEL sums over `depth` steps of a and of a panel, added to `sums`, or, where they BEGIN, put there.
template <int ROWS, bool BEGIN = false, class Unit>
ALONE void add_block(OperandOf<Unit> a, const Unit* panel, int64_t depth, float* sums) {
    typedef typename Registers<Unit>::Sum Sum;
    typedef typename Registers<Unit>::Entries Entries;
    Sum kept[ROWS][WIDE];
    UNROLL for (int row = 0; row < ROWS; row++)
        UNROLL for (int j = 0; j < WIDE; j++) kept[row][j] = BEGIN ? Sum{} : (Sum)load(sums + row * PANEL + j * LANES);
    for (int64_t r = 0; r < depth; r++, panel += PANEL, a.data += a.along) {
        Entries columns[WIDE];
        UNROLL for (int j = 0; j < WIDE; j++) columns[j] = entries_at(panel + j * LANES);
        fetch_ahead(a, panel);
        UNROLL for (int row = 0; row < ROWS; row++) {
            const Entries value = in_all_lanes(a.data[row * a.across]);
            UNROLL for (int j = 0; j < WIDE; j++) kept[row][j] = add_product(kept[row][j], value, columns[j]);
        }
    }
    UNROLL for (int row = 0; row < ROWS; row++)
        UNROLL for (int j = 0; j < WIDE; j++) store(sums + row * PANEL + j * LANES, (Floats)kept[row][j]);
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
