// Weights of a layer (section 3.1), for training and inference.
#pragma once
#include <cstdint>

struct Parameter {
    const void* value;  // or null
    void* gradient;     // null in inference
};

template <class T>
static const T* values_of(const Parameter& parameter) {
    return static_cast<const T*>(parameter.value);
}

struct Norm {
    Parameter weight, bias;  // [d_model]; weight null: no norm; bias: or null
    float epsilon;
    int32_t rms;  // 1: RMSNorm, without centering
};

struct Linear {
    Parameter weight, bias;  // [outputs, inputs], packed for inference; [outputs] or null
    const float* scales;     // of each output of an int8 weight, or null
    int32_t outputs, inputs;
    int32_t parts;  // 1: weight packed in parts (split.h), for inference
};

// Missing parts are null. In inference one product has several results: `query` yields queries, keys and values,
// `cross_key` keys and values, and `inner` the gate and then the other half.
struct Layer {
    Norm self_norm, cross_norm, feed_forward_norm;
    Linear query, key, value, output;
    Linear cross_query, cross_key, cross_value, cross_output;
    Linear gate, inner, outer;
};
