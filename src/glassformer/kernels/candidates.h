// The normaliser of a row of logits, and its greatest entries without sorting it.
#pragma once
#include "vectors.h"
#include <algorithm>
#include <vector>

#define GROUP (8 * LANES)

// log Σ e^x
static float log_sum(const float* x, int64_t count) {
    Floats largest = all(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) largest = greater(largest, load(x + i));
    float shift = maximum(largest);
    for (; i < count; i++) shift = x[i] > shift ? x[i] : shift;
    if (!std::isfinite(shift)) return shift;
    Floats totals[4] = {};
    for (i = 0; i + 4 * LANES <= count; i += 4 * LANES)
        for (int j = 0; j < 4; j++) totals[j] += exponential(load(x + i + j * LANES) - shift);
    float rest = 0;
    for (; i < count; i++) rest += std::exp(x[i] - shift);
    return shift + std::log(sum((totals[0] + totals[1]) + (totals[2] + totals[3])) + rest);
}

struct Candidate {
    float value;
    int64_t index;
    bool operator<(const Candidate& other) const {  // the better one comes first, of equal ones the earlier
        return value > other.value || (value == other.value && index < other.index);
    }
};

// Only groups of GROUP entries whose greatest is among the k greatest of all groups can hold one of the k best.
static void best(const float* x, int64_t count, int64_t k, float* values, int64_t* indices) {
    thread_local std::vector<Candidate> groups, found;
    groups.clear(), found.clear();
    for (int64_t start = 0; start < count; start += GROUP) {
        const int64_t stop = start + GROUP < count ? start + GROUP : count;
        Floats largest = all(-INFINITY);
        int64_t i = start;
        for (; i + LANES <= stop; i += LANES) largest = greater(load(x + i), largest);
        float value = maximum(largest);
        for (; i < stop; i++) value = x[i] > value ? x[i] : value;
        groups.push_back({value, start});
    }
    const int64_t chosen = std::min<int64_t>(k, groups.size());
    std::partial_sort(groups.begin(), groups.begin() + chosen, groups.end());
    const float least = groups[chosen - 1].value;  // with k groups, k entries are as great at least
    for (int64_t g = 0; g < chosen; g++) {
        const int64_t start = groups[g].index, stop = start + GROUP < count ? start + GROUP : count;
        for (int64_t i = start; i < stop; i++) {
            const Candidate candidate{x[i] == x[i] ? x[i] : -INFINITY, i};  // what is not a number comes last
            if (chosen == k && candidate.value < least) continue;
            if (static_cast<int64_t>(found.size()) == k && !(candidate < found.back())) continue;
            if (static_cast<int64_t>(found.size()) == k) found.pop_back();
            found.insert(std::upper_bound(found.begin(), found.end(), candidate), candidate);
        }
    }
    for (int64_t i = 0; i < k; i++) values[i] = found[i].value, indices[i] = found[i].index;
}
