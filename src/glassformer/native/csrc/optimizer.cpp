// Gradients after the backward pass, and the update of the weights, exported.
#include "api.h"
#include "gradients.h"
#include "update.h"

API int32_t scale_numbers(void* x, int64_t count, int32_t bfloat16, float factor, int64_t threads) {
    return guarded([&] {
        if (bfloat16) scale(static_cast<uint16_t*>(x), count, factor, threads);
        else scale(static_cast<float*>(x), count, factor, threads);
    });
}

API int32_t add_matrix_rows(const RowSum* sum) {
    return guarded([&] { add_rows(*sum); });
}

API int32_t measure_gradients(Update* update) {
    return guarded([&] { measure(*update); });
}

API int32_t update_all(const Update* update) {
    return guarded([&] { update_weights(*update); });
}
