// The inner loop of every matrix product: some rows of one matrix by a packed panel of the other.
//
// In float32 a step of the sum has one entry, in bfloat16 two and in eight bits two or four, which processors multiply
// and add at once. Processors with AMX multiply whole tiles: a register holds sixteen rows, of sixteen sums or of
// sixteen pairs of bfloat16 or quadruples of bytes, and one instruction adds the product of two registers to a third.
#pragma once
#include "simd.h"
#include <type_traits>
#if defined(__AVX512BF16__)
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
#if (LANES == 16 && defined(__AVX512VNNI__)) || (LANES == 8 && defined(__AVXVNNI__))
#define HAS_VNNI 1
#else
#define HAS_VNNI 0
#endif

#if LANES == 16
#define WIDE 4
#define TALL 6
#define PANELS_OF_A_ROW 1
#else
#define WIDE 2
#define TALL 5
#define PANELS_OF_A_ROW 4  // together, in float32: the sums of one panel alone would wait for those before them
#endif
#define PANEL (WIDE * LANES)

// A matrix of a product: what step r of the sum takes from entry i lies at data[i · across + r · along].
template <class Unit>
struct OperandOf {
    const Unit* data;
    int64_t across, along;
};
typedef OperandOf<float> Operand;
typedef uint32_t Pair __attribute__((may_alias));

// In eight bits a step has four entries, which some processors multiply and add at once, or two, for which all have an
// instruction if one of the two matrices is in sixteen bits.
#if HAS_VNNI
typedef int8_t Quantized;
#define WEIGHT_OFFSET 128  // is added to each weight: the instruction multiplies unsigned by signed bytes
#else
typedef int16_t Quantized;
#define WEIGHT_OFFSET 0
#endif
struct Group { int32_t numbers; };  // the quantized numbers of a row in one step
struct PackedGroup { int8_t weights[4 / sizeof(Quantized)]; };

// What a product takes of a row for one step of the sum.
template <class T> struct Step { typedef float Unit; enum { ENTRIES = 1 }; };
template <> struct Step<uint16_t> { typedef Pair Unit; enum { ENTRIES = 2 }; };
template <> struct Step<Quantized> { typedef Group Unit; enum { ENTRIES = 4 / sizeof(Quantized) }; };

// Types of a product with this unit: of a packed column in one step, of a stored sum and of a vector of them, and of
// the registers for sums and for what is multiplied. Compilers keep a sum in registers only in the instruction's own
// type.
template <class Unit> struct Registers {
    typedef float Packed, Number;
    typedef Floats Stored, Sum, Entries;
};
static inline Floats entries_at(const float* panel) { return load(panel); }
static inline Floats in_all_lanes(float value) { return all(value); }
static inline Floats add_product(Floats sum, Floats value, Floats column) { return sum + value * column; }

template <> struct Registers<Group> {
    typedef PackedGroup Packed;
    typedef int32_t Number;
    typedef Ints Stored, Sum, Entries;
};
static inline Ints in_all_lanes(Group value) { return value.numbers - Ints{}; }
#if HAS_VNNI
static inline Ints entries_at(const PackedGroup* panel) { return *reinterpret_cast<const Ints*>(panel); }
static inline Ints add_product(Ints sum, Ints value, Ints column) {
#if LANES == 16
    return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)column, (__m512i)value);
#else
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)column, (__m256i)value);
#endif
}
#else
static inline Ints entries_at(const PackedGroup* panel) {
    // Of the built-in conversion GCC makes four times as many instructions.
#if defined(__AVX512BW__)
    return (Ints)_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel)));
#elif LANES == 8 && defined(__AVX2__)
    return (Ints)_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panel)));
#else
    typedef int8_t Packed __attribute__((vector_size(2 * LANES), aligned(1), may_alias));
    typedef int16_t Wide __attribute__((vector_size(4 * LANES)));
    return (Ints)__builtin_convertvector(*reinterpret_cast<const Packed*>(panel), Wide);
#endif
}
static inline Ints add_product(Ints sum, Ints value, Ints column) {
#if defined(__AVX512BW__)
    return sum + (Ints)_mm512_madd_epi16((__m512i)value, (__m512i)column);
#elif LANES == 8 && defined(__AVX2__)
    return sum + (Ints)_mm256_madd_epi16((__m256i)value, (__m256i)column);
#else
    return sum + (value << 16 >> 16) * (column << 16 >> 16) + (value >> 16) * (column >> 16);
#endif
}
#endif

#if HAS_BFLOAT16
template <> struct Registers<Pair> {
    typedef Pair Packed;
    typedef float Number;
    typedef Floats Stored;
    typedef __m512 Sum;
    typedef __m512bh Entries;
};
static inline __m512bh entries_at(const Pair* panel) { return (__m512bh)_mm512_loadu_si512(panel); }
static inline __m512bh in_all_lanes(Pair value) { return (__m512bh)_mm512_set1_epi32(static_cast<int32_t>(value)); }
static inline __m512 add_product(__m512 sum, __m512bh value, __m512bh column) {
    return _mm512_dpbf16_ps(sum, column, value);
}
#endif

template <class Unit> using Packed = typename Registers<Unit>::Packed;
template <class Unit> using Number = typename Registers<Unit>::Number;

// Asks for what comes some steps later: the first processors with matrix instructions wait for the second level of
// their cache otherwise, and lose a tenth of their speed. Others fetch ahead by themselves, or it was not measured on
// them.
template <class Unit>
static inline void fetch_ahead(const OperandOf<Unit>& a, const Packed<Unit>* panel) {
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

// ROWS × PANEL sums over `depth` steps of a and of a panel, added to `sums`, or, where they BEGIN, put there. Several
// panels lie `apart`, and their sums side by side.
template <int ROWS, bool BEGIN = false, int PANELS = 1, class Unit>
ALONE void add_block(
    OperandOf<Unit> a, const Packed<Unit>* panel, int64_t depth, Number<Unit>* sums, int64_t apart = 0
) {
    typedef typename Registers<Unit>::Sum Sum;
    typedef typename Registers<Unit>::Stored Stored;
    typedef typename Registers<Unit>::Entries Entries;
    enum { VECTORS = PANELS * WIDE };
    Sum totals[ROWS][VECTORS];
    UNROLL for (int row = 0; row < ROWS; row++)
        UNROLL for (int j = 0; j < VECTORS; j++)
            totals[row][j] = BEGIN ? Sum{} : (Sum)load(sums + (row * VECTORS + j) * LANES);
    for (int64_t r = 0; r < depth; r++, panel += PANEL, a.data += a.along) {
        Entries columns[VECTORS];
        UNROLL for (int j = 0; j < VECTORS; j++) columns[j] = entries_at(panel + j / WIDE * apart + j % WIDE * LANES);
        fetch_ahead(a, panel);
        UNROLL for (int row = 0; row < ROWS; row++) {
            const Entries value = in_all_lanes(a.data[row * a.across]);
            UNROLL for (int j = 0; j < VECTORS; j++) totals[row][j] = add_product(totals[row][j], value, columns[j]);
        }
    }
    UNROLL for (int row = 0; row < ROWS; row++)
        UNROLL for (int j = 0; j < VECTORS; j++)
            store(sums + (row * VECTORS + j) * LANES, (Stored)totals[row][j]);
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

#if HAS_AMX
#define AMX_SIDE 16
#define AMX_DEPTH 8  // of steps, so that what two rows of tiles read stays in the first level of the cache

// Linux gives a process these registers when it asks for them (arch_prctl(2), ARCH_REQ_XCOMP_PERM for XTILEDATA).
static bool amx_allowed() {
    static const bool allowed = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
    return allowed;
}

// GCC does not know that these instructions read memory: what was written must be there before.
static inline void all_written() { __asm__ volatile("" ::: "memory"); }

// How many rows, and bytes of a row, each register is used for: 0 to 3 hold sums, 4 and 5 rows of a, 6 and 7 a panel.
struct alignas(64) TileConfig {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};

    TileConfig(int64_t upper, int64_t lower, int64_t steps) {
        for (int i = 0; i < 8; i++) {
            const int64_t of_a = i % 2 ? lower : upper;
            rows[i] = static_cast<uint8_t>(i < 2 ? upper : i < 4 ? lower : i < 6 ? of_a : steps);
            bytes[i] = static_cast<uint16_t>(rows[i] == 0 ? 0 : 4 * (i == 4 || i == 5 ? steps : AMX_SIDE));
        }
    }
};

static void configure_tiles(int64_t upper, int64_t lower, int64_t steps) {
    const TileConfig config(upper, lower, steps);
    all_written();
    _tile_loadconfig(&config);
    all_written();
}

#define AMX_ADD(sum, a, panel)                                                   \
    if constexpr (std::is_same<Unit, Pair>::value) _tile_dpbf16ps(sum, a, panel); \
    else _tile_dpbsud(sum, a, panel)

// Two tiles of sums beside each other, and two below them if there are that many rows, over `count` times `steps`
// steps.
template <class Unit, bool LOWER>
static inline void amx_block(
    const Unit* a, int64_t across, const Packed<Unit>* panel, int64_t count, Number<Unit>* sums, bool begin
) {
    const int64_t row = PANEL * sizeof *sums;
    auto below = sums + AMX_SIDE * PANEL;
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
        _tile_loadd(1, sums + AMX_SIDE, row);
        if (LOWER) {
            _tile_loadd(2, below, row);
            _tile_loadd(3, below + AMX_SIDE, row);
        }
    }
    for (int64_t i = 0; i < count; i++, a += AMX_SIDE, panel += AMX_SIDE * PANEL) {
        _tile_loadd(6, panel, PANEL * sizeof(Unit));
        _tile_loadd(4, a, across * sizeof(Unit));
        AMX_ADD(0, 4, 6);
        _tile_loadd(7, panel + AMX_SIDE, PANEL * sizeof(Unit));
        AMX_ADD(1, 4, 7);
        if (LOWER) {
            _tile_loadd(5, a + AMX_SIDE * across, across * sizeof(Unit));
            AMX_ADD(2, 5, 6);
            AMX_ADD(3, 5, 7);
        }
    }
    _tile_stored(0, sums, row);
    _tile_stored(1, sums + AMX_SIDE, row);
    if (LOWER) {
        _tile_stored(2, below, row);
        _tile_stored(3, below + AMX_SIDE, row);
    }
}

// The sums [rows, PANEL] of at most two tiles of rows below each other.
template <class Unit>
static void amx_rows(
    const Unit* a, int64_t across, int64_t rows, const Packed<Unit>* panel, int64_t count, int64_t steps,
    Number<Unit>* sums, bool begin
) {
    const int64_t upper = std::min<int64_t>(AMX_SIDE, rows), lower = rows - upper;
    const bool whole = upper == AMX_SIDE && lower % AMX_SIDE == 0 && steps == AMX_SIDE;
    if (!whole) configure_tiles(upper, lower, steps);
    for (int64_t j = 0; j < PANEL; j += 2 * AMX_SIDE) {
        if (lower) amx_block<Unit, true>(a, across, panel + j, count, sums + j, begin);
        else amx_block<Unit, false>(a, across, panel + j, count, sums + j, begin);
    }
    if (!whole) configure_tiles(AMX_SIDE, AMX_SIDE, AMX_SIDE);
}

// The sums [rows, PANEL] over all steps of rows and a panel; the registers have their usual shape.
template <class Unit>
static void amx_panel(
    const Unit* a, int64_t across, int64_t rows, const Packed<Unit>* panel, int64_t steps, Number<Unit>* sums
) {
    for (int64_t r = 0; r < steps;) {
        const int64_t count = std::min<int64_t>(AMX_DEPTH, (steps - r) / AMX_SIDE);
        const int64_t depth = count ? AMX_SIDE : steps - r;
        for (int64_t row = 0; row < rows; row += 2 * AMX_SIDE) {
            const Unit* from = a + row * across + r;
            const int64_t some = std::min<int64_t>(2 * AMX_SIDE, rows - row);
            amx_rows<Unit>(
                from, across, some, panel + r * PANEL, std::max<int64_t>(1, count), depth, sums + row * PANEL, !r
            );
        }
        r += count ? count * AMX_SIDE : depth;
    }
}
#endif
