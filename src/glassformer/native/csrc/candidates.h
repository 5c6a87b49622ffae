// The normalizer of a row of logits, its greatest entries without sorting it; a step of beam search.
#pragma once
#include "simd.h"
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
    if (k < 1) return;
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

// One step of beam search: of each sentence the best extensions of its live hypotheses, of which each gives at most
// `each`. Equally good ones are in the order of the hypotheses, and then of the candidates of each.
struct Extension {
    int64_t sentences, live, vocabulary, each, candidates, beam, end;
    const float *logits;                // [sentences, live, vocabulary], of what is allowed
    const float *normalizers, *totals;  // [sentences, live]
    // Results, [sentences, candidates + beam]: the candidates, then those of them that go on, best first: the totals
    // that are reached, by how much they have changed, which hypothesis is continued, and with what.
    float *reached, *added;
    int64_t *parents, *tokens;
    int64_t ended;  // how many candidates of all sentences end
};

static void extend(Extension& e) {
    e.ended = 0;
    std::vector<float> values(e.each), added(e.live * e.each);
    std::vector<int64_t> tokens(e.live * e.each);
    std::vector<Candidate> found(e.live * e.each);
    for (int64_t s = 0; s < e.sentences; s++) {
        for (int64_t row = 0; row < e.live; row++) {
            const float* logits = e.logits + (s * e.live + row) * e.vocabulary;
            const float normalizer = e.normalizers[s * e.live + row], total = e.totals[s * e.live + row];
            best(logits, e.vocabulary, e.each, values.data(), tokens.data() + row * e.each);
            for (int64_t i = 0, at = row * e.each; i < e.each; i++, at++) {
                const float gained = values[i] - normalizer;
                added[at] = gained > 0 ? 0 : gained;
                const float reached = total + added[at];
                found[at] = {reached == reached ? reached : -INFINITY, at};
            }
        }
        std::partial_sort(found.begin(), found.begin() + e.candidates, found.end());
        int64_t to = s * (e.candidates + e.beam), next = to + e.candidates;
        auto put = [&](int64_t place, const Candidate& one, float reached) {
            e.reached[place] = reached, e.added[place] = added[one.index];
            e.parents[place] = one.index / e.each, e.tokens[place] = tokens[one.index];
        };
        const int64_t stop = next + e.beam;
        for (int64_t i = 0; i < e.candidates; i++, to++) {
            put(to, found[i], found[i].value);
            if (tokens[found[i].index] == e.end) e.ended += found[i].value > -INFINITY;
            else if (next < stop) put(next++, found[i], found[i].value);
        }
        for (int64_t i = 0; next < stop; i++)  // too few go on: the rest is dead
            if (tokens[found[i].index] == e.end) put(next++, found[i], -INFINITY);
    }
}
