// What a process asks of the library before it uses it.
#include "api.h"
#include "layouts.h"
#include "microkernel.h"

// What the bits of a result depend on: a number, raised when sums are added in another order or random numbers are
// drawn in another way; the compiler's way of joining products and sums; the instructions.
API const char* arithmetic() {
#if defined(__clang__)
#define ARITHMETIC "2, Clang"
#else
#define ARITHMETIC "2"
#endif
#if HAS_AMX
    if (amx_allowed()) return ARITHMETIC ", 512 bits, matrices";
#endif
#if HAS_BFLOAT16 && !HAS_AMX
    return ARITHMETIC ", 512 bits, bfloat16";
#elif LANES == 16
    return ARITHMETIC ", 512 bits";
#elif defined(__FMA__) || defined(__aarch64__)
    return ARITHMETIC ", fused";
#else
    return ARITHMETIC;
#endif
}

// The digest of the sources that this was built from, as library.py computes it.
API const char* sources() { return SOURCES_DIGEST; }

// Whether the system lets this process use all the registers that the kernels were compiled for.
API int32_t has_permission() {
#if HAS_AMX
    return amx_allowed();
#else
    return 1;
#endif
}

// The layout of a struct that abi.py mirrors (layouts.h), valid until the next call of the thread; empty if unknown.
API const char* struct_layout(const char* name) {
    thread_local std::string layout;
    layout = layout_of(name);
    return layout.c_str();
}

API int32_t panel_size() { return PANEL; }

API int32_t has_bfloat16() {
#if HAS_AMX
    return amx_allowed();
#else
    return HAS_BFLOAT16;
#endif
}
