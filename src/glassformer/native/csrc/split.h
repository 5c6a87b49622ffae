// Float32 numbers as sums of three bfloat16 numbers. AMX adds the products of those in float32.
//
// x = high + middle + low exactly. Of the nine products of two numbers' parts six are added; the others are less than
// 2^-22 of the numbers' product, in the mean 2^-26, where float32 rounds to 2^-24. Henry, Tang & Heinecke (2019,
// https://arxiv.org/abs/1904.06376) describe such products. Numbers that are not finite, or beyond 3.39e38, become NaN;
// parts below 1.2e-38 count as 0.
#pragma once
#include "microkernel.h"
#if HAS_AMX

enum Part { HIGH, MIDDLE, LOW };
struct SplitFloats { Floats high, middle, low; };

static inline Floats nearest_bfloat16(Floats x) {
    return (Floats)(((Ints)x + 0x8000) & static_cast<int32_t>(0xffff0000));
}

static inline SplitFloats split(Floats x) {
    const Floats high = nearest_bfloat16(x), rest = x - high, middle = nearest_bfloat16(rest);
    return {high, middle, rest - middle};
}

// Pairs of the upper halves of the lanes of two vectors.
static inline Ints paired(Floats first, Floats second) {
    return (Ints)_mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)((Ints)first >> 16), (__m512i)second);
}

// Pairs of the upper halves of adjacent lanes of one vector and the next.
static inline Ints adjacent_pairs(Floats first, Floats second) {
    alignas(64) static const uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    return (Ints)_mm512_permutex2var_epi16((__m512i)first, _mm512_load_si512(odd), (__m512i)second);
}

static inline void store_pairs(Pair* to, Ints pairs) { store(reinterpret_cast<int32_t*>(to), pairs); }

// Split a vector of two steps, and write it to a row of a panel. `next_part` is the distance of its parts.
static inline void put_split(Floats first, Floats second, Pair* to, int64_t next_part) {
    const SplitFloats upper = split(first), lower = split(second);
    store_pairs(to + HIGH * next_part, paired(upper.high, lower.high));
    store_pairs(to + MIDDLE * next_part, paired(upper.middle, lower.middle));
    store_pairs(to + LOW * next_part, paired(upper.low, lower.low));
}

// Split 2 · LANES entries of a row. `next_part` is the distance of its parts.
static inline void put_split_row(Floats first, Floats second, Pair* to, int64_t next_part) {
    const SplitFloats left = split(first), right = split(second);
    store_pairs(to + HIGH * next_part, adjacent_pairs(left.high, right.high));
    store_pairs(to + MIDDLE * next_part, adjacent_pairs(left.middle, right.middle));
    store_pairs(to + LOW * next_part, adjacent_pairs(left.low, right.low));
}

// LANES numbers from the column `column` of a panel, at the first or the second of the entries of a step.
static inline Floats joined(const Split* panel, int64_t column, bool second) {
    const auto part = [=](Part which) {
        return half_of(*reinterpret_cast<const Ints*>(panel->parts + which * PANEL + column), second);
    };
    return part(HIGH) + (part(MIDDLE) + part(LOW));
}

#define SQUARE_STEPS (2 * LANES)  // entries of a row that become one tile

// Split SQUARE_STEPS entries of LANES rows into at most LANES steps, `count`, of LANES columns of a panel.
static inline void pack_split_square(const float* from, int64_t stride, int64_t count, Split* to, int64_t column) {
    alignas(64) Pair rows[PARTS][LANES][LANES], columns[LANES][LANES];
    for (int i = 0; i < LANES; i++, from += stride)
        put_split_row(load(from), load(from + LANES), rows[0][i], LANES * LANES);
    for (int part = 0; part < PARTS; part++) {
        Pair* at = to->parts + part * PANEL + column;
        const bool full = count == LANES;
        transpose_square(
            reinterpret_cast<const float*>(rows[part]), LANES, reinterpret_cast<float*>(full ? at : columns[0]),
            full ? PARTS * PANEL : LANES
        );
        for (int64_t i = 0; !full && i < count; i++, at += PARTS * PANEL) memcpy(at, columns[i], sizeof columns[i]);
    }
}

// LANES rows of SQUARE_STEPS entries, of an operand of any strides; zeros behind its `rows` and `steps`.
struct Square {
    float numbers[LANES][SQUARE_STEPS];

    Square(const Operand& from, int64_t rows, int64_t steps) {
        if (from.across == 1 && rows >= LANES && steps >= SQUARE_STEPS) {
            transpose_square(from.data, from.along, numbers[0], SQUARE_STEPS);
            transpose_square(from.data + LANES * from.along, from.along, numbers[0] + LANES, SQUARE_STEPS);
            return;
        }
        for (int64_t row = 0; row < LANES; row++)
            for (int64_t step = 0; step < SQUARE_STEPS; step++)
                numbers[row][step] =
                    row < rows && step < steps ? from.data[row * from.across + step * from.along] : 0.0f;
    }
};
#endif
