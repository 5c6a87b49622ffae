// The update of the weights, exported.
#include "api.h"
#include "update.h"

API int32_t measure_gradients(Update* update) {
    return guarded([&] { measure(*update); });
}

API int32_t update_all(const Update* update) {
    return guarded([&] { update_weights(*update); });
}
