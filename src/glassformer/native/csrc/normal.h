// The normal distribution Φ(x), by which GELU multiplies x, and the slope of the product, Φ(x) + x · φ(x).
#pragma once
#include "simd.h"

struct Normal { Floats cdf, slope; };

#if LANES == 16
// Coefficients of Φ(|x|) − ½ as polynomials of t = |x| − center, for intervals with centers at multiples of WIDTH. From
// the last interval on it is ½. One instruction looks up a coefficient for each of 16 lanes.
struct CdfTable {
    static constexpr int INTERVALS = 32, TERMS = 5;
    static constexpr double WIDTH = 0.1875;
    float coefficients[TERMS][INTERVALS];
};

// φ(x) = e^(−x²/2) / √(2π), with the series of e^(x²/2).
static constexpr double density(double x) {
    double sum = 1, term = 1;
    for (int n = 1; n < 150; n++) term *= x * x / 2 / n, sum += term;
    return 0.3989422804014327 / sum;
}

// Φ(x) − ½ = φ(x) · (x + x³ / 3 + x⁵ / 15 + …)
static constexpr double centered_cdf(double x) {
    double sum = 0, term = x;
    for (int n = 3; n < 300; n += 2) sum += term, term *= x * x / n;
    return density(x) * sum;
}

// Each polynomial equals Φ − ½ at its center, and its derivative equals φ at Chebyshev's four points of the interval
// (Newton's divided differences).
static constexpr CdfTable cdf_table() {
    constexpr int count = CdfTable::TERMS - 1;
    constexpr double points[count] = {-0.9238795325112867, -0.3826834323650898, 0.3826834323650898, 0.9238795325112867};
    constexpr double half = CdfTable::WIDTH / 2;
    CdfTable table{};
    table.coefficients[0][CdfTable::INTERVALS - 1] = 0.5f;
    for (int interval = 0; interval < CdfTable::INTERVALS - 1; interval++) {
        const double center = interval * CdfTable::WIDTH;
        double differences[count] = {}, derivative[count] = {};
        for (int i = 0; i < count; i++) differences[i] = density(center + points[i] * half);
        for (int order = 1; order < count; order++)
            for (int i = count - 1; i >= order; i--)
                differences[i] = (differences[i] - differences[i - 1]) / ((points[i] - points[i - order]) * half);
        for (int i = count - 1; i >= 0; i--) {  // derivative = derivative · (t − point) + difference
            for (int power = count - 1; power > 0; power--)
                derivative[power] = derivative[power - 1] - points[i] * half * derivative[power];
            derivative[0] = differences[i] - points[i] * half * derivative[0];
        }
        table.coefficients[0][interval] = static_cast<float>(centered_cdf(center));
        for (int power = 0; power < count; power++)
            table.coefficients[power + 1][interval] = static_cast<float>(derivative[power] / (power + 1));
    }
    return table;
}

alignas(64) static constexpr CdfTable CDF_TABLE = cdf_table();

// Φ to 1e-7, the slope to 6e-7. NaN stays NaN.
static inline Normal normal(Floats x) {
    constexpr auto width = static_cast<float>(CdfTable::WIDTH);
    const Floats rounder = broadcast(12582912.0f);  // 1.5 · 2^23: adding it rounds to an integer, in the lowest bits
    const Floats limit = broadcast(width * (CdfTable::INTERVALS - 1));
    const Floats size = (Floats)_mm512_min_ps((__m512)limit, (__m512)magnitude(x));
    const Floats nearest = size * (1 / width) + rounder, t = size - (nearest - rounder) * width;
    Floats cdf = {}, density = {};
    UNROLL_FOR (int power = CdfTable::TERMS - 1; power >= 0; power--) {
        const float* row = CDF_TABLE.coefficients[power];
        const Floats coefficient =
            (Floats)_mm512_permutex2var_ps((__m512)load(row), (__m512i)nearest, (__m512)load(row + LANES));
        if (power == CdfTable::TERMS - 2) density = cdf;
        else if (power < CdfTable::TERMS - 2) density = density * t + cdf;
        cdf = power == CdfTable::TERMS - 1 ? coefficient : cdf * t + coefficient;
    }
    cdf = 0.5f + with_sign(cdf, x);
    return {cdf, cdf + x * density};
}
#else
// Both to 3e-7 (Abramowitz & Stegun 1964, 7.1.26).
static inline Normal normal(Floats x) {
    const Floats scaled = x * 0.70710678f, size = magnitude(scaled);
    const Floats t = 1.0f / (1.0f + 0.3275911f * size), density = exponential(-size * size);
    Floats p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const Floats error = 1.0f - p * t * density;
    const Floats cdf = 0.5f + 0.5f * with_sign(error, scaled);
    return {cdf, cdf + x * density * 0.39894228f};
}
#endif
