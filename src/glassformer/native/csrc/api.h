// Exported functions: linkage and error codes. The caller owns all memory that outlives a call.
#pragma once
#include "glibc.h"
#include <cstdint>
#include <new>
#include <stdexcept>

#define API extern "C" __attribute__((visibility("default")))

// An error code, 0 for success: no exception may reach a caller that is not C++.
template <class Work>
static int32_t guarded(Work work) {
    try {
        work();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    } catch (const std::out_of_range&) {
        return 2;
    }
}
