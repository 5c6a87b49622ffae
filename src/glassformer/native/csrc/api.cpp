// Properties of the library, checked before it is used, and the elementwise operations of training, exported.
#include "api.h"
#include "amx.h"
#include "dropout.h"
#include "layouts.h"
#include "rope.h"

// The bits of a result depend on: a version, raised when the order of sums or the random numbers change; the compiler's
// contraction of products and sums; the instruction set, and a version of what is computed with it alone. Matrices are
// used in attention since their version 2, in products of float32 with weights since 3; pairs of bfloat16 in all
// products of attention since 2. Since matrices 4, pairs 3 and version 2 of 512 bits GELU is looked up in a table. Since
// matrices 4, pairs 3 and pairs 2 of 128 bits e^x is rougher for results in bfloat16.
API const char* arithmetic() {
#if defined(__clang__)
#define ARITHMETIC "2, Clang"
#else
#define ARITHMETIC "2"
#endif
#if defined(__FMA__) || defined(__aarch64__)
#define FUSED ", fused"
#else
#define FUSED ""
#endif
#if HAS_AMX
    return ARITHMETIC ", 512 bits, matrices 4";
#elif LANES == 16 && HAS_BFLOAT16
    return ARITHMETIC ", 512 bits, pairs 3";
#elif LANES == 16
    return ARITHMETIC ", 512 bits 2";
#elif LANES == 8
    return ARITHMETIC FUSED;
#elif HAS_BFLOAT16
    return ARITHMETIC ", 128 bits" FUSED ", pairs 2";
#else
    return ARITHMETIC ", 128 bits" FUSED;
#endif
}

// Digest of the sources of this build, as library.py computes it.
API const char* sources() { return SOURCES_DIGEST; }

// 1 if the system permits this process all registers that the kernels use; library.py uses no library without them.
API int32_t has_permission() {
#if HAS_AMX
    return amx_permitted();
#else
    return 1;
#endif
}

// Message of the last error of this thread, valid until its next one.
API const char* error_message() { return error_text().c_str(); }

// Layout of a struct that abi.py mirrors (layouts.h), valid until the next call of the thread; empty if unknown.
API const char* struct_layout(const char* name) {
    thread_local std::string layout;
    layout = layout_of(name);
    return layout.c_str();
}

// 1 if float32 products of encoders and of training have bfloat16 parts (split.h).
API int32_t multiplies_parts() { return HAS_AMX; }

API int32_t panel_size() { return PANEL; }

API int32_t has_bfloat16() { return HAS_BFLOAT16; }

// y = dropout(x); the dropped elements do not depend on the type.
API int32_t drop_elements(
    const void* x, int64_t count, int32_t bfloat16, uint64_t seed, int32_t threshold, void* y, int64_t threads
) {
    return guarded([&] {
        const Dropout dropout(seed, threshold);
        if (bfloat16) drop(static_cast<const uint16_t*>(x), count, dropout, static_cast<uint16_t*>(y), threads);
        else drop(static_cast<const float*>(x), count, dropout, static_cast<float*>(y), threads);
    });
}

API int32_t rotate_pairs(const Rotation* rotation) {
    return guarded([&] {
        if (rotation->bfloat16) rotate<uint16_t>(*rotation);
        else rotate<float>(*rotation);
    });
}
