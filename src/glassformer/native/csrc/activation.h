// Activations of a feed-forward layer and their gradients, for training and use: ReLU (section 3.3), GELU and its
// approximation with tanh (Hendrycks & Gimpel 2016), SiLU (Elfwing et al. 2018).
#pragma once
#include "normal.h"
#include <type_traits>

enum Activation { NONE, RELU, GELU, SILU, GELU_TANH };  // as ACTIVATIONS in abi.py

// The factor g(x) of the smooth activations, which are x · g(x): Φ(x), its approximation with tanh, or the logistic
// function. Exponents are bounded, so that every finite x has a finite result.
static inline Floats gate(Activation activation, Floats x) {
    if (activation == GELU) return normal(x).cdf;
    if (activation == SILU) return 1.0f / (1.0f + exponential(-greater(broadcast(-87.0f), x)));
    const Floats twice = 1.59576912f * (x + 0.044715f * x * x * x);  // 2 √(2/π) (x + …)
    return 1.0f - 1.0f / (1.0f + exponential(twice > 80.0f ? broadcast(80.0f) : twice));
}

// NaN stays NaN.
static inline Floats activated(Activation activation, Floats x) {
    if (activation == NONE) return x;
    if (activation == RELU) return greater(Floats{}, x);
    return x * gate(activation, x);
}

// The activation of x, and the gradient with respect to x from the gradient d of the result. ReLU's depends on the sign
// alone, so x may be its result.
struct ActivationGradient { Floats activated, gradient; };

static inline ActivationGradient activation_gradient(Activation activation, Floats x, Floats d) {
    if (activation == RELU) return {greater(Floats{}, x), x > 0.0f ? d : Floats{}};
    if (activation == GELU) {
        const Normal n = normal(x);
        return {x * n.cdf, d * n.slope};
    }
    const Floats g = gate(activation, x), slope = x * g * (1.0f - g);
    if (activation == SILU) return {x * g, d * (g + slope)};
    return {x * g, d * (g + slope * 1.59576912f * (1.0f + 0.134145f * x * x))};
}

// Call work(kind), with the activation as a constant: its loops then have no branches, and its factors stay in
// registers.
template <class Work>
static inline void with_activation(Activation activation, Work work) {
    switch (activation) {
        case NONE: return work(std::integral_constant<Activation, NONE>{});
        case RELU: return work(std::integral_constant<Activation, RELU>{});
        case GELU: return work(std::integral_constant<Activation, GELU>{});
        case SILU: return work(std::integral_constant<Activation, SILU>{});
        default: return work(std::integral_constant<Activation, GELU_TANH>{});
    }
}
