// What stands between the two products of a feed-forward layer (section 3.3; Hendrycks & Gimpel 2016), and its slope.
#pragma once
#include "vectors.h"

enum Activation { NONE, RELU, GELU, SILU, GELU_TANH };

// To 1.5e-7 (Abramowitz & Stegun 1964, 7.1.26).
static inline Floats error_function(Floats x) {
    const Floats size = x < 0.0f ? -x : x, t = 1.0f / (1.0f + 0.3275911f * size);
    Floats p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const Floats y = 1.0f - p * t * exponential(-size * size);
    return x < 0.0f ? -y : y;
}

// Φ(x), or what the form with tanh has in its place.
static inline Floats share_of_gelu(Activation activation, Floats x) {
    if (activation == GELU) return 0.5f + 0.5f * error_function(x * 0.70710678f);
    const Floats twice = 1.59576912f * (x + 0.044715f * x * x * x);  // 2 √(2/π) (x + …)
    return 1.0f - 1.0f / (1.0f + exponential(twice > 80.0f ? all(80.0f) : twice));
}

static inline Floats activated(Activation activation, Floats x) {
    if (activation == RELU) return greater(x, Floats{});
    return x * share_of_gelu(activation, x);
}

// d, the gradient of what was activated → that of x, of which ReLU needs no more than what it has become.
static inline Floats activation_gradient(Activation activation, Floats x, Floats d) {
    if (activation == RELU) return x > 0.0f ? d : Floats{};
    const Floats share = share_of_gelu(activation, x);
    if (activation == GELU) return d * (share + x * exponential(-0.5f * x * x) * 0.39894228f);
    return d * (share + x * share * (1.0f - share) * 1.59576912f * (1.0f + 0.134145f * x * x));
}
