// The inner loop of every matrix product: a few rows of one matrix times a packed panel of the other.
//
// A step of the sum has one entry in float32, two in bfloat16, and two or four in int8, which one instruction
// multiplies and adds. amx.h has the products of processors with AMX.
#pragma once
#include "arguments.h"
#include "simd.h"
#include <type_traits>
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define HAS_BFLOAT16 1
#else
#define HAS_BFLOAT16 0
#endif
#if HAS_BFLOAT16 && defined(__AMX_BF16__) && defined(__AMX_INT8__) && defined(__linux__)
#define HAS_AMX 1
#include <sys/syscall.h>
#include <unistd.h>
#else
#define HAS_AMX 0
#endif

// The microkernel adds to TALL rows × WIDE vectors of sums in registers; a panel has WIDE vectors of columns.
#if LANES == 4
#define TALL 5  // with the factors of a step, 6 × WIDE sums do not fit 32 registers
#else
#define TALL 6
#endif
#define FULL_TILE_ROWS (8 * TALL)  // rows that fill tiles, and vectors of rows
// PANELS_OF_A_ROW are multiplied together in float32: the sums of a single panel would wait for their predecessors.
#if LANES == 16
#define WIDE 4
#define PANELS_OF_A_ROW 1
#elif LANES == 8
#define WIDE 2
#define PANELS_OF_A_ROW 4
#else
#define WIDE 4
#define PANELS_OF_A_ROW 2
#endif
#define PANEL (WIDE * LANES)
#if LANES == 8 && defined(__FMA__)
#define UNROLLED_STEPS 8  // their shares are full lines of the cache
#else
#define UNROLLED_STEPS 1
#endif
// Columns of the next panel that a tile prefetches in each step, so that four tiles prefetch all. Two tiles alone share
// them. With AVX2 a line in every other step keeps all buffers for misses of a core busy: gradients of weights lost a
// tenth of their speed.
#define SHARE (PANEL / 4)
#define SHARE_OF_TWO_TILES (UNROLLED_STEPS > 1 ? PANEL / 2 : SHARE)
#define LINE 16  // floats of a line of the cache

typedef uint32_t Pair __attribute__((may_alias));

// An int8 step has four entries if an instruction multiplies bytes. Without one it has two, and an operand is stored in
// 16 bits. WEIGHT_OFFSET is added to each weight: VNNI multiplies unsigned by signed bytes.
#if (LANES == 16 && defined(__AVX512VNNI__)) || (LANES == 8 && defined(__AVXVNNI__))
#define MULTIPLIES_BYTES 1
#define WEIGHT_OFFSET 128
#elif defined(__ARM_FEATURE_DOTPROD)
#define MULTIPLIES_BYTES 1
#define WEIGHT_OFFSET 0
#else
#define MULTIPLIES_BYTES 0
#define WEIGHT_OFFSET 0
#endif
typedef std::conditional_t<MULTIPLIES_BYTES, int8_t, int16_t> Quantized;
struct Group { int32_t numbers; };  // quantized entries of a row in one step
struct PackedGroup { int8_t weights[4 / sizeof(Quantized)]; };

// Entries of a row in one step of the sum.
template <class T> struct Step {
    typedef float Unit;
    enum { ENTRIES = 1 };
};
template <> struct Step<uint16_t> {
    typedef Pair Unit;
    enum { ENTRIES = 2 };
};
template <> struct Step<Quantized> {
    typedef Group Unit;
    enum { ENTRIES = 4 / sizeof(Quantized) };
};

// Types of a product with this unit: a packed column in one step, a stored sum, a vector of sums, and the registers for
// sums and factors. Compilers keep a sum in registers only in the type of the instruction.
template <class Unit> struct Registers {
    typedef float Packed, Number;
    typedef Floats Stored, Sum, Entries;
};
static inline Floats entries_at(const float* panel) { return load(panel); }
static inline Floats add_product(Floats sum, Floats value, Floats column) { return sum + value * column; }

// Like Ints, but aligned, as the instruction's own type: GCC 12 would write sums of Ints to memory in every step.
typedef int32_t IntRegister __attribute__((vector_size(4 * LANES)));
static inline IntRegister broadcast(Group value) { return value.numbers - IntRegister{}; }

template <> struct Registers<Group> {
    typedef PackedGroup Packed;
    typedef int32_t Number;
    typedef Ints Stored;
    typedef IntRegister Sum, Entries;
};
#if MULTIPLIES_BYTES
static inline IntRegister entries_at(const PackedGroup* panel) { return *reinterpret_cast<const Ints*>(panel); }
static inline IntRegister add_product(IntRegister sum, IntRegister value, IntRegister column) {
#if LANES == 16
    return (IntRegister)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)column, (__m512i)value);
#elif LANES == 4
    return (IntRegister)vdotq_s32((int32x4_t)sum, (int8x16_t)column, (int8x16_t)value);
#else
    return (IntRegister)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)column, (__m256i)value);
#endif
}
#else
static inline IntRegister entries_at(const PackedGroup* panel) {
    // GCC compiles the built-in conversion to four times as many instructions.
#if defined(__AVX512BW__)
    return (IntRegister)_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel)));
#elif LANES == 8
    return (IntRegister)_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panel)));
#elif defined(__ARM_NEON)
    return (IntRegister)vmovl_s8(vld1_s8(reinterpret_cast<const int8_t*>(panel)));
#else
    typedef int8_t Packed __attribute__((vector_size(2 * LANES), aligned(1), may_alias));
    typedef int16_t Wide __attribute__((vector_size(4 * LANES)));
    return (IntRegister)__builtin_convertvector(*reinterpret_cast<const Packed*>(panel), Wide);
#endif
}
static inline IntRegister add_product(IntRegister sum, IntRegister value, IntRegister column) {
#if defined(__AVX512BW__)
    return sum + (IntRegister)_mm512_madd_epi16((__m512i)value, (__m512i)column);
#elif LANES == 8
    return sum + (IntRegister)_mm256_madd_epi16((__m256i)value, (__m256i)column);
#else
    return sum + (value << 16 >> 16) * (column << 16 >> 16) + (value >> 16) * (column >> 16);
#endif
}
#endif

#if HAS_BFLOAT16
#if LANES == 16
typedef __m512 PairSum;
typedef __m512bh PairEntries;
static inline PairEntries entries_at(const Pair* panel) { return (PairEntries)_mm512_loadu_si512(panel); }
static inline PairEntries broadcast(Pair value) { return (PairEntries)_mm512_set1_epi32(static_cast<int32_t>(value)); }
static inline PairSum add_product(PairSum sum, PairEntries value, PairEntries column) {
    return _mm512_dpbf16_ps(sum, column, value);
}
#else
typedef float32x4_t PairSum;
typedef bfloat16x8_t PairEntries;
static inline PairEntries entries_at(const Pair* panel) { return vreinterpretq_bf16_u32(vld1q_u32(panel)); }
static inline PairEntries broadcast(Pair value) { return vreinterpretq_bf16_u32(vdupq_n_u32(value)); }
static inline PairSum add_product(PairSum sum, PairEntries value, PairEntries column) {
    return vbfdotq_f32(sum, column, value);
}
#endif

template <> struct Registers<Pair> {
    typedef Pair Packed;
    typedef float Number;
    typedef Floats Stored;
    typedef PairSum Sum;
    typedef PairEntries Entries;
};
#endif

#if HAS_AMX
#define PARTS 3
// Two entries of float32, each as the sum of three bfloat16 numbers. Panels of them have the pairs of one part of all
// columns behind those of the other (split.h).
struct Split { Pair parts[PARTS]; };

template <> struct Registers<Split> {
    typedef Split Packed;
    typedef float Number;
};
#endif

template <class Unit> using Packed = typename Registers<Unit>::Packed;
template <class Unit> using Number = typename Registers<Unit>::Number;

// In float32, prefetch the line at `later` into the L2 cache, and with AMX the operands of later steps. Without it the
// first processors with AMX wait for their caches and lose a tenth of their speed, Zen 3 up to 7 % of it in gradients
// of wide weights. Others were not measured.
template <class Unit>
static inline void fetch_ahead(const OperandOf<Unit>& a, const Packed<Unit>* panel, const Packed<Unit>* later) {
#if defined(__AMX_TILE__)
    UNROLL_FOR (int j = 0; j < WIDE; j++) __builtin_prefetch(panel + 4 * PANEL + j * LANES);
    __builtin_prefetch(a.data + 32 * a.along);
#else
    (void)a, (void)panel;
#endif
#if defined(__AMX_TILE__) || LANES == 8
    if (std::is_same<Unit, float>::value) __builtin_prefetch(later, 0, 2);
#else
    (void)later;
#endif
}

// Entries that a tile prefetches while it reads a panel: `share` columns of each step, from `from` on.
template <class Entry>
struct Ahead {
    const Entry* from;
    int share;
};

// The share of the tile at `row`, of `rows` rows, of `next`, or of the steps behind a panel, which may be in the L3
// cache. Tiles for which none is left prefetch nothing new.
template <class Entry>
static inline Ahead<Entry> share_to_fetch(
    const Entry* panel, const Entry* next, int64_t steps, int64_t row, int64_t rows
) {
    const int share = rows > 2 * TALL ? SHARE : SHARE_OF_TWO_TILES;
    return {row / TALL * share < PANEL ? next + row / TALL * steps * share : panel, share};
}
template <class Entry>
static inline Ahead<Entry> steps_to_fetch(const Entry* panel, int64_t steps, int64_t row, int64_t rows) {
    return share_to_fetch(panel, panel + steps * PANEL, steps, row, rows);
}

// A function of its own keeps the sums in registers. Inlined before other calls, compilers keep them in memory, at half
// the speed.
#define NOINLINE __attribute__((noinline)) static

#if UNROLLED_STEPS > 1
// sum += value · column. In a long loop GCC would copy the sums from register to register.
static inline void add_in_place(Floats& sum, Floats value, Floats column) {
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(value), "x"(column));
}
#if !MULTIPLIES_BYTES
static inline void add_in_place(IntRegister& sum, IntRegister value, IntRegister column) {
    IntRegister product;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(value), "x"(column));
}
#endif

// Add the products of UNROLLED_STEPS steps at a time; returns the number of steps. Rows have adjacent steps, or, if
// PACKED, a step has adjacent entries of TALL rows. A loop of single steps has 25 instructions for six rows, five of
// them of the loop. They cost no time, unless the core's other hardware thread is busy: then products take a seventh
// longer (benchmarks/notes.md).
template <int ROWS, bool PACKED, int FETCHED, class Unit>
static inline __attribute__((always_inline)) int64_t add_unrolled_products(
    OperandOf<Unit> a, const Packed<Unit>* panel, int64_t depth, const Packed<Unit>* later,
    typename Registers<Unit>::Sum (&totals)[ROWS][WIDE]
) {
    enum { HALF = 3, ALONG = PACKED ? TALL : 1 };
    static_assert(ROWS <= 2 * HALF, "each row is within two strides of one of the pointers");
    const Unit *low = a.data, *high = a.data + HALF * a.across;
    int64_t r = 0;
    for (; r + UNROLLED_STEPS <= depth; r += UNROLLED_STEPS) {
        UNROLL_FOR (int i = 0; i < UNROLLED_STEPS; i++) {
            if (std::is_same<Unit, float>::value && i * FETCHED % LINE == 0)
                __builtin_prefetch(later + i * FETCHED, 0, 2);
            typename Registers<Unit>::Entries columns[WIDE];
            UNROLL_FOR (int j = 0; j < WIDE; j++) columns[j] = entries_at(panel + i * PANEL + j * LANES);
            UNROLL_FOR (int row = 0; row < ROWS; row++) {
                const Unit* at = PACKED ? low + row : (row < HALF ? low : high) + row % HALF * a.across;
                const auto value = broadcast(at[i * ALONG]);
                UNROLL_FOR (int j = 0; j < WIDE; j++) add_in_place(totals[row][j], value, columns[j]);
            }
            // A compiler that knows the values would keep the addresses of each step in registers of their own.
            __asm__("" : "+r"(low), "+r"(high), "+r"(panel), "+r"(a.across));
        }
        low += UNROLLED_STEPS * ALONG, high += UNROLLED_STEPS * ALONG;
        panel += UNROLLED_STEPS * PANEL, later += UNROLLED_STEPS * FETCHED;
    }
    return r;
}
#endif

// Add the products of ROWS rows of a and a panel over `depth` steps to sums in registers. Several panels have the
// distance `panel_stride`.
template <int ROWS, int PANELS = 1, class Unit>
static inline __attribute__((always_inline)) void add_products(
    OperandOf<Unit> a, const Packed<Unit>* panel, int64_t depth, Ahead<Packed<Unit>> ahead, int64_t panel_stride,
    typename Registers<Unit>::Sum (&totals)[ROWS][PANELS * WIDE]
) {
    enum { VECTORS = PANELS * WIDE };
    const Packed<Unit>* later = ahead.from;
    int64_t r = 0;
#if UNROLLED_STEPS > 1
    if constexpr (PANELS == 1 && (std::is_same<Unit, float>::value || !MULTIPLIES_BYTES)) {
        constexpr bool floats = std::is_same<Unit, float>::value;
        if (a.along == 1 && floats && ahead.share != SHARE)
            r = add_unrolled_products<ROWS, false, SHARE_OF_TWO_TILES>(a, panel, depth, later, totals);
        else if (a.along == 1) r = add_unrolled_products<ROWS, false, SHARE>(a, panel, depth, later, totals);
        else if (floats && a.along == TALL && a.across == 1)
            r = add_unrolled_products<ROWS, true, SHARE>(a, panel, depth, later, totals);
        panel += r * PANEL, later += r * ahead.share, a.data += r * a.along;
    }
#endif
    for (; r < depth; r++, panel += PANEL, later += SHARE, a.data += a.along) {
        typename Registers<Unit>::Entries columns[VECTORS];
        UNROLL_FOR (int j = 0; j < VECTORS; j++)
            columns[j] = entries_at(panel + j / WIDE * panel_stride + j % WIDE * LANES);
        fetch_ahead(a, panel, later);
        UNROLL_FOR (int row = 0; row < ROWS; row++) {
            const auto value = broadcast(a.data[row * a.across]);
            UNROLL_FOR (int j = 0; j < VECTORS; j++) totals[row][j] = add_product(totals[row][j], value, columns[j]);
        }
    }
}

// Add ROWS × PANEL sums over `depth` steps of a and a panel to `sums`; with BEGIN, overwrite them. Several panels have
// adjacent sums.
template <int ROWS, bool BEGIN = false, int PANELS = 1, class Unit>
NOINLINE void add_block(
    OperandOf<Unit> a, const Packed<Unit>* panel, int64_t depth, Number<Unit>* sums, Ahead<Packed<Unit>> ahead,
    int64_t panel_stride = 0
) {
    typedef typename Registers<Unit>::Sum Sum;
    typedef typename Registers<Unit>::Stored Stored;
    enum { VECTORS = PANELS * WIDE };
    Sum totals[ROWS][VECTORS];
    UNROLL_FOR (int row = 0; row < ROWS; row++)
        UNROLL_FOR (int j = 0; j < VECTORS; j++)
            totals[row][j] = BEGIN ? Sum{} : (Sum)load(sums + (row * VECTORS + j) * LANES);
    add_products<ROWS, PANELS>(a, panel, depth, ahead, panel_stride, totals);
    UNROLL_FOR (int row = 0; row < ROWS; row++)
        UNROLL_FOR (int j = 0; j < VECTORS; j++) store(sums + (row * VECTORS + j) * LANES, (Stored)totals[row][j]);
}

// Call work(height, row) for TALL rows at a time, then for the rest.
template <class Work>
static inline void for_each_tile(int64_t rows, Work work) {
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
