// Activations between the two products of a feed-forward layer, and their gradients, for training and decoding:
// ReLU (section 3.3), GELU and its approximation with tanh (Hendrycks & Gimpel 2016), SiLU (Elfwing et al. 2018).
#pragma once
#include "vectors.h"

enum Activation { NONE, RELU, GELU, SILU, GELU_TANH };  // as ACTIVATIONS in abi.py

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

// The factor g(x) of the smooth activations, which are x · g(x): Φ(x), its approximation with tanh, or the logistic
// function. Exponents are bounded, so that every finite x has a finite result.
static inline Floats gate(Activation activation, Floats x) {
    if (activation == GELU) return 0.5f + 0.5f * error_function(x * 0.70710678f);
    if (activation == SILU) return 1.0f / (1.0f + exponential(x < -87.0f ? all(87.0f) : -x));
    const Floats twice = 1.59576912f * (x + 0.044715f * x * x * x);  // 2 √(2/π) (x + …)
    return 1.0f - 1.0f / (1.0f + exponential(twice > 80.0f ? all(80.0f) : twice));
}

// NaN stays NaN.
static inline Floats activated(Activation activation, Floats x) {
    if (activation == NONE) return x;
    if (activation == RELU) return x < 0.0f ? Floats{} : x;
    return x * gate(activation, x);
}

// From the gradient d of the activation's result to that of x. ReLU's depends on the sign alone, so x may be its result.
static inline Floats activation_gradient(Activation activation, Floats x, Floats d) {
    if (activation == RELU) return x > 0.0f ? d : Floats{};
    const Floats g = gate(activation, x);
    if (activation == GELU) return d * (g + x * exponential(-0.5f * x * x) * 0.39894228f);
    if (activation == SILU) return d * (g + x * g * (1.0f - g));
    return d * (g + x * g * (1.0f - g) * 1.59576912f * (1.0f + 0.134145f * x * x));
}
