// Single operations of training, exported.
#include "api.h"
#include "attention.h"
#include "products.h"
#include "rope.h"

API int32_t multiply_matrices(const MatrixProduct* product) {
    return guarded([&] { multiply(*product); });
}

// y = dropout(x); the dropped elements do not depend on the type.
API int32_t drop_elements(
    const void* x, int64_t count, int32_t bfloat16, uint64_t seed, int32_t threshold, void* y, int64_t threads
) {
    return guarded([&] {
        const Dropout dropout = {seed, threshold, 256.0f / (256 - threshold)};
        if (bfloat16) drop(static_cast<const uint16_t*>(x), count, dropout, static_cast<uint16_t*>(y), threads);
        else drop(static_cast<const float*>(x), count, dropout, static_cast<float*>(y), threads);
    });
}

API int32_t full_attention(const Attention* attention, int32_t backward) {
    return guarded([&] {
        if (attention->bfloat16) attend_batches<uint16_t>(*attention, backward);
        else attend_batches<float>(*attention, backward);
    });
}

API int32_t rotate_pairs(const Rotation* rotation) {
    return guarded([&] {
        if (rotation->bfloat16) rotate<uint16_t>(*rotation);
        else rotate<float>(*rotation);
    });
}
