// The weights of a layer (section 3.1), in training and in use.
#pragma once
#include <cstdint>

struct Parameter {
    const void* value;  // or null
    void* gradient;     // null in use
};

template <class T>
static const T* values_of(const Parameter& parameter) { return static_cast<const T*>(parameter.value); }

struct Norm {
    Parameter weight, bias;  // [d_model]; weight: null where there is no norm; bias: or null
    float epsilon;
    int32_t rms;  // 1: RMSNorm, nothing is centered
};

struct Linear {
    Parameter weight, bias;  // [outputs, inputs], in use packed; [outputs] or null
    const float* scales;     // of each output of a weight packed in eight bits, or null
    int32_t outputs, inputs;
};

// What a layer does not have is null. In use one product has several results: `query` gives queries, keys and values,
// `cross_key` keys and values, and `inner` the gate and behind it the other half.
struct Layer {
    Norm self_norm, cross_norm, feed_forward_norm;
    Linear query, key, value, output;
    Linear cross_query, cross_key, cross_value, cross_output;
    Linear gate, inner, outer;
};
