// Linear layers in inference (linear.cpp).
#pragma once
#include "activation.h"
#include "arguments.h"

struct Output {
    float* values;
    int64_t stride;
    Activation activation;
    bool add;  // add to the previous values: the residual connection
};

// Store or add y = x Wᵀ + b; x: [rows, inputs].
void linear(const Linear& weights, const float* x, int64_t rows, Output out, int64_t threads);
