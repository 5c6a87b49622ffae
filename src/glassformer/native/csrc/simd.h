// Vectors of floats and ints as wide as the processor's registers, in the vector extensions of GCC and Clang. GCC keeps
// wider ones in memory.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
#define UNROLL_FOR(...) _Pragma("GCC unroll 16") for (__VA_ARGS__)

typedef float Floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int8_t Bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

static constexpr int64_t ceil_div(int64_t count, int64_t by) { return (count + by - 1) / by; }
static constexpr int64_t padded(int64_t count, int64_t to) { return ceil_div(count, to) * to; }
static inline Floats load(const float* from) { return *reinterpret_cast<const Floats*>(from); }
static inline void store(float* to, Floats values) { *reinterpret_cast<Floats*>(to) = values; }
static inline Ints load(const int32_t* from) { return *reinterpret_cast<const Ints*>(from); }
static inline void store(int32_t* to, Ints values) { *reinterpret_cast<Ints*>(to) = values; }
static inline Floats broadcast(float value) { return value - Floats{}; }
static inline Ints lane_numbers() {
    Ints lane;
    for (int i = 0; i < LANES; i++) lane[i] = i;
    return lane;
}

// a > b ? a : b in one instruction, where GCC would use two. If a or b is NaN, the result is b.
static inline Floats greater(Floats a, Floats b) {
#if LANES == 16
    return (Floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif LANES == 8
    return (Floats)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return a > b ? a : b;
#endif
}

static inline Floats magnitude(Floats x) { return (Floats)((Ints)x & INT32_MAX); }

// x, or −x in the lanes where `sign` is negative.
static inline Floats with_sign(Floats x, Floats sign) { return (Floats)((Ints)x ^ ((Ints)sign & INT32_MIN)); }

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
#define SHUFFLE(values, ...) __builtin_shuffle(values, Ints{__VA_ARGS__})
#define ZIP(a, b, ...) __builtin_shuffle(a, b, Ints{__VA_ARGS__})
#else
#define SHUFFLE(values, ...) __builtin_shufflevector(values, values, __VA_ARGS__)
#define ZIP(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif

// LANES bytes as ints. GCC 12 compiles __builtin_convertvector to 21 instructions here with AVX2, to 49 with AVX-512,
// and on ARM to a load for each byte.
static inline Ints widened(const void* bytes) {
#if LANES == 16
    return (Ints)_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(bytes)));
#elif LANES == 8
    return (Ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(bytes)));
#elif defined(__ARM_NEON)
    uint64_t four = 0;
    memcpy(&four, bytes, LANES);
    return (Ints)vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four))));
#else
    return __builtin_convertvector(*static_cast<const Bytes*>(bytes), Ints);
#endif
}

// Prefetch into the processor's cache.
template <class T>
static inline void prefetch(const T* from, int64_t count) {
    for (int64_t i = 0; i < count; i += 64 / sizeof(T)) __builtin_prefetch(from + i);
}

// With AVX2, prefetch a line that is read or written after the next products. It may be in the L3 cache or in memory,
// and x86 completes stores in order: later ones wait for it. Not measured with other instructions.
static inline void fetch_line(const void* at) {
#if LANES == 8
    __builtin_prefetch(at);
#else
    (void)at;
#endif
}

// Reduce lanes i and i + half until one is left, always in the same order. A rotation of the lanes changes no bit: sums
// of attention begin at the first visible key of a tile, and so at another lane with another size of tiles.
#if LANES == 16
#define SHUFFLED(values, a, b, c, d) SHUFFLE(values, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d)
#define FOLD_TO_FOUR(values, with)                                                                \
    values = with(values, SHUFFLE(values, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)); \
    values = with(values, SHUFFLED(values, 4, 5, 6, 7));
#elif LANES == 8
#define SHUFFLED(values, a, b, c, d) SHUFFLE(values, a, b, c, d, a, b, c, d)
#define FOLD_TO_FOUR(values, with) values = with(values, SHUFFLED(values, 4, 5, 6, 7));
#else
#define SHUFFLED(values, a, b, c, d) SHUFFLE(values, a, b, c, d)
#define FOLD_TO_FOUR(values, with)
#endif
#define FOLD(values, with)                               \
    FOLD_TO_FOUR(values, with)                           \
    values = with(values, SHUFFLED(values, 2, 3, 0, 1)); \
    values = with(values, SHUFFLED(values, 1, 0, 3, 2));

// Transpose LANES × LANES numbers by repeatedly interleaving the upper half of the rows with the lower half.
static inline void transpose_square(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    Floats rows[LANES], zipped[LANES];
    UNROLL_FOR (int i = 0; i < LANES; i++) rows[i] = load(from + i * from_stride);
    for (int half = 1; half < LANES; half *= 2) {
        UNROLL_FOR (int i = 0; i < LANES / 2; i++) {
            const Floats a = rows[i], b = rows[i + LANES / 2];
#if LANES == 16
            zipped[2 * i] = ZIP(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            zipped[2 * i + 1] = ZIP(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif LANES == 8
            zipped[2 * i] = ZIP(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
            zipped[2 * i + 1] = ZIP(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
            zipped[2 * i] = ZIP(a, b, 0, 4, 1, 5);
            zipped[2 * i + 1] = ZIP(a, b, 2, 6, 3, 7);
#endif
        }
        UNROLL_FOR (int i = 0; i < LANES; i++) rows[i] = zipped[i];
    }
    UNROLL_FOR (int i = 0; i < LANES; i++) store(to + i * to_stride, rows[i]);
}

static inline Floats neighbors_swapped(Floats values) {
#if LANES == 16
    return SHUFFLE(values, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif LANES == 8
    return SHUFFLE(values, 1, 0, 3, 2, 5, 4, 7, 6);
#else
    return SHUFFLE(values, 1, 0, 3, 2);
#endif
}

static inline Floats plus(Floats a, Floats b) { return a + b; }

static inline float sum(Floats values) {
    FOLD(values, plus)
    return values[0];
}

// Sums of a, b, c and d, each at the beginning of a quarter of the result.
static inline Floats four_sums(Floats a, Floats b, Floats c, Floats d) {
#if LANES == 16
#define HALVES(a, b)                                                     \
    (ZIP(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) + \
     ZIP(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
    const Floats ab = HALVES(a, b), cd = HALVES(c, d);
    Floats quarters = ZIP(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                      ZIP(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    quarters += SHUFFLE(quarters, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    return quarters + neighbors_swapped(quarters);
#elif LANES == 8
#define HALVES(a, b) (ZIP(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + ZIP(a, b, 4, 5, 6, 7, 12, 13, 14, 15))
    const Floats ab = HALVES(a, b), cd = HALVES(c, d);
    Floats quarters = ZIP(ab, cd, 0, 1, 4, 5, 8, 9, 12, 13) + ZIP(ab, cd, 2, 3, 6, 7, 10, 11, 14, 15);
    return quarters + neighbors_swapped(quarters);
#else
#define HALVES(a, b) (ZIP(a, b, 0, 4, 1, 5) + ZIP(a, b, 2, 6, 3, 7))
    const Floats ab = HALVES(a, b), cd = HALVES(c, d);
    return ZIP(ab, cd, 0, 1, 4, 5) + ZIP(ab, cd, 2, 3, 6, 7);
#endif
}

static inline float maximum(Floats values) {
    FOLD(values, greater)
    return values[0];
}

#define LOG2_E 1.44269504f
#define LN_2 0.693147181f

// e^x for x ≤ 88 to 2e-7: 2^n · p(x − n ln 2), p a Taylor polynomial on |r| ≤ ln 2 / 2. Below −87 it is 0.
static inline Floats exponential(Floats x) {
    const Floats rounder = broadcast(12582912.0f);         // 1.5 · 2^23: adding it rounds to an integer
    const Floats bounded = greater(broadcast(-87.0f), x);  // NaN stays NaN
    const Floats n = (bounded * LOG2_E + rounder) - rounder;
    Floats r = bounded - n * 0.693359375f;
    r -= n * -2.12194440e-4f;
    Floats p = broadcast(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
#if LANES == 16
    const Floats result = (Floats)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    const Floats result = p * (Floats)((__builtin_convertvector(n, Ints) + 127) << 23);
#endif
    return x < -87.0f ? Floats{} : result;
}

// 2^x for x ≤ 127 to 3e-6, for results that are rounded to bfloat16, which has 4e-3: 2^⌊x⌋ · p(x − ⌊x⌋). The polynomial
// p has the least relative error on [0, 1] of those of degree 4 with p(0) = 1. Below −126 the result is 0.
static inline Floats rough_power_of_two(Floats x) {
#if LANES == 16
    const Floats f = (Floats)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    const Floats bounded = greater(broadcast(-126.0f), x), rounder = broadcast(12582912.0f);
    const Floats near = (bounded + rounder) - rounder, n = near > bounded ? near - 1.0f : near, f = bounded - n;
#endif
    Floats p = broadcast(1.3426686e-2f);
    p = p * f + 5.2242473e-2f;
    p = p * f + 2.4128021e-1f;
    p = p * f + 6.9304484e-1f;
    p = p * f + 1.0f;
#if LANES == 16
    const Floats result = (Floats)_mm512_scalef_ps((__m512)p, (__m512)x);  // rounds x down
#else
    const Floats result = p * (Floats)((__builtin_convertvector(n, Ints) + 127) << 23);
#endif
    return x < -126.0f ? Floats{} : result;
}

// ln x to 1e-7 for normal x > 0: e ln 2 + ln m, x = m · 2^e, √½ ≤ m < √2 (the polynomial of Cephes' logf). −∞ for 0.
static inline Floats logarithm(Floats x) {
    const Ints exponent = ((Ints)x - 0x3f3504f3) >> 23;
    const Floats e = __builtin_convertvector(exponent, Floats);
    const Floats f = (Floats)((Ints)x - (exponent << 23)) - 1.0f, square = f * f;
    Floats p = broadcast(7.0376836292e-2f);
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    const Floats result = f + (p * f * square - e * 2.12194440e-4f - 0.5f * square) + e * 0.693359375f;
    return x == 0.0f ? broadcast(-INFINITY) : x == x ? result : x;
}

// Storage is bfloat16 or float32; the arithmetic is float32.
typedef uint16_t Halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

static inline Floats read(const float* from) { return load(from); }
static inline void write(float* to, Floats values) { store(to, values); }

// 16-bit numbers as ints. GCC 12 converts vectors of more than 128 bits in parts.
static inline Ints widened(Halves halves) {
#if LANES == 16
    return (Ints)_mm512_cvtepu16_epi32((__m256i)halves);
#elif LANES == 8
    return (Ints)_mm256_cvtepu16_epi32((__m128i)halves);
#else
    return __builtin_convertvector(halves, Ints);
#endif
}

static inline Floats read(const uint16_t* from) {  // bfloat16
    return (Floats)(widened(*reinterpret_cast<const Halves*>(from)) << 16);
}

// The numbers rounded to bfloat16: to nearest, ties to even; NaN stays NaN.
static inline Halves rounded(Floats values) {
#if defined(__AVX512BF16__)
    return (Halves)_mm512_cvtneps_pbh((__m512)values);
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return (Halves)vcvt_bf16_f32((float32x4_t)values);
#else
    const Ints bits = (Ints)values, nearest = bits + 0x7fff + (bits >> 16 & 1);
    const Ints result = values == values ? nearest : bits | 0x400000;
    return __builtin_convertvector(result >> 16 & 0xffff, Halves);
#endif
}

static inline void write(uint16_t* to, Floats values) { *reinterpret_cast<Halves*>(to) = rounded(values); }

// The lower or the upper halves of the lanes, which are bfloat16.
static inline Floats half_of(Ints pairs, bool upper) {
    return (Floats)(upper ? pairs & static_cast<int32_t>(0xffff0000) : pairs << 16);
}

// Pairs of the 16-bit numbers of two vectors, those of the first in the lower bits.
static inline Ints paired(Halves first, Halves second) {
#if LANES == 16
    alignas(64) static const uint16_t order[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                   8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    return (Ints)_mm512_permutex2var_epi16(
        _mm512_castsi256_si512((__m256i)first), _mm512_load_si512(order), _mm512_castsi256_si512((__m256i)second)
    );
#else
    return widened(first) | widened(second) << 16;
#endif
}

// The numbers as they are after storing: rounded to bfloat16, or as they are.
static inline Floats as_stored(const float*, Floats values) { return values; }
static inline Floats as_stored(const uint16_t*, Floats values) { return (Floats)(widened(rounded(values)) << 16); }

static inline float single(float value) { return value; }
static inline void put_single(float* to, float value) { *to = value; }

static inline float single(uint16_t half) {
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline void put_single(uint16_t* to, float value) {
    uint16_t halves[LANES];
    write(halves, broadcast(value));
    *to = halves[0];
}

// The first `count` of LANES numbers, zeros behind them.
template <class T>
static inline Floats read_first(const T* from, int64_t count) {
    Floats values = {};
    for (int64_t i = 0; i < std::min<int64_t>(count, LANES); i++) values[i] = single(from[i]);
    return values;
}

// Store the first `count` lanes.
template <class T>
static inline void write_first(T* to, int64_t count, Floats values) {
    T lanes[LANES];
    write(lanes, values);
    for (int64_t i = 0; i < std::min<int64_t>(count, LANES); i++) to[i] = lanes[i];
}

#if LANES == 16
static inline __mmask16 first_lanes(int64_t count) {
    return static_cast<__mmask16>(count >= LANES ? 0xffff : count <= 0 ? 0 : (1 << count) - 1);
}

static inline Floats read_first(const float* from, int64_t count) {
    return (Floats)_mm512_maskz_loadu_ps(first_lanes(count), from);
}

static inline void write_first(float* to, int64_t count, Floats values) {
    _mm512_mask_storeu_ps(to, first_lanes(count), (__m512)values);
}
#endif

// Read LANES numbers, or the first `count`, with zeros behind them.
template <class T>
static inline Floats read_partial(const T* from, int64_t count) {
    return count >= LANES ? read(from) : read_first(from, count);
}

// Store all lanes, or the first `count`.
template <class T>
static inline void write_partial(T* to, int64_t count, Floats values) {
    if (count >= LANES) write(to, values);
    else write_first(to, count, values);
}

template <class T>
static inline float dot(const float* a, const T* b, int count) {
    Floats total = {};
    int i = 0;
    for (; i + LANES <= count; i += LANES) total += load(a + i) * read(b + i);
    float result = sum(total);
    for (; i < count; i++) result += a[i] * single(b[i]);
    return result;
}

// Copy numbers without conversion.
template <class T>
static inline void put(const T* from, int64_t count, T* to) {
    std::copy(from, from + count, to);
}

// Copy numbers of bfloat16 as float32.
static inline void put(const uint16_t* from, int64_t count, float* to) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, read(from + i));
    for (; i < count; i++) to[i] = single(from[i]);
}

// Copy numbers, rounded to bfloat16.
static inline void put(const float* from, int64_t count, uint16_t* to) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) write(to + i, load(from + i));
    if (i < count) write_first(to + i, count - i, read_first(from + i, count - i));
}
