// Instructions that this processor lacks, in plain C++: included before the sources of the kernels (`g++ -include`), it
// lets their code for 512-bit vectors, VNNI, bfloat16 and AMX run anywhere, slowly. EMULATE is 0 for AVX-VNNI alone,
// 1 for AVX-512, 2 for VNNI too, 3 for BF16 too, 4 for AMX too. What the processor has is used as it is.
//
// Results are those of the instructions up to the order of sums in float32.
#pragma once
#if !defined(EMULATE)
#error "EMULATE is not defined"
#endif
#include <cstdint>
#include <cstring>
#include <immintrin.h>
typedef float EmulatedFloats __attribute__((vector_size(64), may_alias));
typedef int32_t EmulatedInts __attribute__((vector_size(64), may_alias));
#if EMULATE >= 1 && !defined(__AVX512F__)
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define NO_AVX512 1
#define __m512 EmulatedFloats
#define __m512i EmulatedInts
#endif

// The sum and four products of unsigned and signed bytes.
static inline int32_t emulated_quad(int32_t sum, uint32_t a, uint32_t b) {
    for (int i = 0; i < 32; i += 8) sum += static_cast<uint8_t>(a >> i) * static_cast<int8_t>(b >> i);
    return sum;
}

static inline float emulated_half(uint32_t bits) {
    bits <<= 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// The sum and two products of bfloat16 numbers.
static inline float emulated_pair(float sum, uint32_t a, uint32_t b) {
    sum += emulated_half(a >> 16) * emulated_half(b >> 16);
    return sum + emulated_half(a & 0xffff) * emulated_half(b & 0xffff);
}

// Products of bytes of vectors of any width, added to sums.
template <class Vector>
static inline Vector emulated_dpbusd(Vector sums, Vector a, Vector b) {
    int32_t s[sizeof sums / 4];
    uint32_t x[sizeof a / 4], y[sizeof b / 4];
    memcpy(s, &sums, sizeof s), memcpy(x, &a, sizeof x), memcpy(y, &b, sizeof y);
    for (size_t i = 0; i < sizeof s / 4; i++) s[i] = emulated_quad(s[i], x[i], y[i]);
    memcpy(&sums, s, sizeof s);
    return sums;
}
#if EMULATE == 0 && !defined(__AVXVNNI__)
#define __AVXVNNI__ 1
#define _mm256_dpbusd_avx_epi32 emulated_dpbusd
#endif
#if EMULATE >= 2 && !defined(__AVX512VNNI__)
#define __AVX512VNNI__ 1
#define _mm512_dpbusd_epi32 emulated_dpbusd
#endif

#if defined(NO_AVX512)
#define _mm512_madd_epi16 emulated_madd
static inline __m512i emulated_madd(__m512i a, __m512i b) {
    int16_t x[32], y[32];
    memcpy(x, &a, 64), memcpy(y, &b, 64);
    for (int i = 0; i < 16; i++) a[i] = x[2 * i] * y[2 * i] + x[2 * i + 1] * y[2 * i + 1];
    return a;
}
#define _mm512_cvtepi8_epi16 emulated_widen<int16_t>
#define _mm512_cvtepi8_epi32 emulated_widen<int32_t>
template <class Wide, class Bytes>
static inline __m512i emulated_widen(Bytes bytes) {
    int8_t x[sizeof bytes];
    Wide y[sizeof bytes];
    __m512i result;
    memcpy(x, &bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) y[i] = x[i];
    memcpy(&result, y, 64);
    return result;
}
#define _mm512_cvtepu16_epi32 emulated_widen_halves
static inline __m512i emulated_widen_halves(__m256i halves) {
    uint16_t x[16];
    __m512i result;
    memcpy(x, &halves, 32);
    for (int i = 0; i < 16; i++) result[i] = x[i];
    return result;
}
#define _mm512_castsi256_si512 emulated_lower_half
static inline __m512i emulated_lower_half(__m256i half) {
    __m512i result = {};
    memcpy(&result, &half, 32);
    return result;
}
#define _mm512_max_ps emulated_max
static inline __m512 emulated_max(__m512 a, __m512 b) { return a > b ? a : b; }
#define _mm512_scalef_ps emulated_scale
static inline __m512 emulated_scale(__m512 x, __m512 exponents) {  // rounded down; or NaN like x
    for (int i = 0; i < 16; i++) {
        if (x[i] != x[i] || exponents[i] != exponents[i]) continue;
        const float bounded = exponents[i] < -300.0f ? -300.0f : exponents[i] > 300.0f ? 300.0f : exponents[i];
        x[i] = __builtin_ldexpf(x[i], static_cast<int>(__builtin_floorf(bounded)));
    }
    return x;
}
#define _mm512_min_ps emulated_min
static inline __m512 emulated_min(__m512 a, __m512 b) { return a < b ? a : b; }
#define _mm512_reduce_ps(x, mode) emulated_fraction(x)
static inline __m512 emulated_fraction(__m512 x) {  // the difference from the next lower integer; 0 for infinity
    for (int i = 0; i < 16; i++) x[i] = __builtin_isinf(x[i]) ? 0.0f : x[i] - __builtin_floorf(x[i]);
    return x;
}
#define _mm512_permutex2var_ps emulated_look_up
static inline __m512 emulated_look_up(__m512 a, __m512i indices, __m512 b) {
    int32_t index[16];
    memcpy(index, &indices, 64);
    __m512 result;
    for (int i = 0; i < 16; i++) result[i] = index[i] & 16 ? b[index[i] & 15] : a[index[i] & 15];
    return result;
}
#define _mm512_load_si512 emulated_load_aligned
static inline __m512i emulated_load_aligned(const void* from) {
    __m512i result;
    memcpy(&result, from, 64);
    return result;
}
#define _mm512_mask_blend_epi16 emulated_blend
static inline __m512i emulated_blend(uint32_t mask, __m512i a, __m512i b) {
    uint16_t x[32], y[32];
    memcpy(x, &a, 64), memcpy(y, &b, 64);
    for (int i = 0; i < 32; i++) x[i] = mask >> i & 1 ? y[i] : x[i];
    memcpy(&a, x, 64);
    return a;
}
#define _mm512_permutex2var_epi16 emulated_permute
static inline __m512i emulated_permute(__m512i a, __m512i indices, __m512i b) {
    uint16_t both[64], index[32], result[32];
    memcpy(both, &a, 64), memcpy(both + 32, &b, 64), memcpy(index, &indices, 64);
    for (int i = 0; i < 32; i++) result[i] = both[index[i] & 63];
    memcpy(&a, result, 64);
    return a;
}
#define _mm512_maskz_loadu_ps emulated_load_some
static inline __m512 emulated_load_some(uint16_t mask, const float* from) {
    __m512 result = {};
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) result[i] = from[i];
    return result;
}
#define _mm512_mask_storeu_ps emulated_store_some
static inline void emulated_store_some(float* to, uint16_t mask, __m512 values) {
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) to[i] = values[i];
}
#endif

#if EMULATE >= 3 && !defined(__AVX512BF16__)
#define __AVX512BF16__ 1
struct EmulatedPairs {
    EmulatedInts bits;
    EmulatedPairs() = default;
    explicit EmulatedPairs(EmulatedInts bits) : bits(bits) {}
};
#define __m512bh EmulatedPairs
#define _mm512_loadu_si512 emulated_load
#define _mm512_set1_epi32 emulated_set
#define _mm512_dpbf16_ps emulated_dpbf16
#define _mm512_cvtneps_pbh emulated_round
static inline EmulatedInts emulated_load(const void* from) {
    EmulatedInts bits;
    memcpy(&bits, from, 64);
    return bits;
}
static inline EmulatedInts emulated_set(int32_t value) { return value - EmulatedInts{}; }
static inline __m512 emulated_dpbf16(__m512 sums, EmulatedPairs a, EmulatedPairs b) {
    const EmulatedInts low = 0xffff - EmulatedInts{};
    sums += (__m512)(a.bits & ~low) * (__m512)(b.bits & ~low);
    return sums + (__m512)(a.bits << 16) * (__m512)(b.bits << 16);
}
typedef uint16_t EmulatedHalves __attribute__((vector_size(32)));
static inline EmulatedHalves emulated_round(__m512 values) {  // to the nearest, ties to even
    EmulatedHalves result;
    for (int i = 0; i < 16; i++) {
        const float value = values[i];
        uint32_t bits;
        memcpy(&bits, &value, 4);
        bits = value == value ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000;
        result[i] = static_cast<uint16_t>(bits >> 16);
    }
    return result;
}
#endif

#if EMULATE >= 4 && !defined(__AMX_TILE__)
#define __AMX_TILE__ 1
#define __AMX_BF16__ 1
#define __AMX_INT8__ 1
#include <sys/syscall.h>
#include <unistd.h>
#define syscall(...) 0  // permission
struct EmulatedTiles {
    bool configured;
    uint8_t rows[8];
    uint16_t bytes[8];
    uint32_t units[8][16][16];
};
static thread_local EmulatedTiles tiles;

#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbsud
#define _tile_loadconfig emulated_loadconfig
#define _tile_release emulated_release
#define _tile_zero emulated_zero
#define _tile_loadd emulated_loadd
#define _tile_stored emulated_stored
#define _tile_dpbf16ps(sum, a, b) emulated_multiply<float>(sum, a, b, emulated_pair)
#define _tile_dpbsud(sum, a, b) \
    emulated_multiply<int32_t>(sum, a, b, [](int32_t s, uint32_t x, uint32_t y) { return emulated_quad(s, y, x); })
static inline void emulated_require(bool holds) {
    if (!holds) __builtin_trap();  // as the processor does
}
static inline void emulated_loadconfig(const void* from) {
    const auto bytes = static_cast<const uint8_t*>(from);
    emulated_require(bytes[0] == 1);
    memset(&tiles, 0, sizeof tiles);
    tiles.configured = true;
    memcpy(tiles.bytes, bytes + 16, 16);
    memcpy(tiles.rows, bytes + 48, 8);
    for (int i = 0; i < 8; i++) emulated_require(tiles.rows[i] <= 16 && tiles.bytes[i] <= 64);
}
static inline void emulated_release() { memset(&tiles, 0, sizeof tiles); }
static inline void emulated_zero(int tile) {
    emulated_require(tiles.configured);
    memset(tiles.units[tile], 0, sizeof tiles.units[tile]);
}
static inline void emulated_loadd(int tile, const void* from, int64_t stride) {
    emulated_zero(tile);
    for (int i = 0; i < tiles.rows[tile]; i++)
        memcpy(tiles.units[tile][i], static_cast<const char*>(from) + i * stride, tiles.bytes[tile]);
}
static inline void emulated_stored(int tile, void* to, int64_t stride) {
    emulated_require(tiles.configured);
    for (int i = 0; i < tiles.rows[tile]; i++)
        memcpy(static_cast<char*>(to) + i * stride, tiles.units[tile][i], tiles.bytes[tile]);
}
template <class Sum, class Multiply>
static inline void emulated_multiply(int sum, int a, int b, Multiply multiply) {
    emulated_require(tiles.rows[sum] == tiles.rows[a] && tiles.bytes[a] == 4 * tiles.rows[b]);
    emulated_require(tiles.bytes[sum] == tiles.bytes[b]);
    for (int row = 0; row < tiles.rows[sum]; row++)
        for (int column = 0; column < tiles.bytes[sum] / 4; column++) {
            Sum total;
            memcpy(&total, &tiles.units[sum][row][column], 4);
            for (int step = 0; step < tiles.rows[b]; step++)
                total = multiply(total, tiles.units[a][row][step], tiles.units[b][step][column]);
            memcpy(&tiles.units[sum][row][column], &total, 4);
        }
}
#endif
