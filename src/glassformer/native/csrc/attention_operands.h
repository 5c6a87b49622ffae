// Operands of attention over full sequences: buffers of a head, blocks of queries, and rows of keys and values.
#pragma once
#include "attention_products.h"
#include "visible_keys.h"

// Width of the rows of a head: numbers, numbers and units in memory, columns of a product, and steps of a sum.
template <class Unit>
struct HeadWidth {
    typedef Granularity<Unit> Grain;
    int64_t size, stride, units, columns, steps;

    explicit HeadWidth(int64_t size)
        : size(size), stride(padded(size, Grain::ENTRIES * LANES)), units(stride / Grain::ENTRIES),
          columns(padded(size, Grain::COLUMNS)), steps(steps_of_numbers<Unit>(size)) {}
};

// Buffers for one head of keys and values and a block of queries. The units of queries and of gradients of contexts are
// transposed. Columns interleave two neighboring rows in bfloat16, and are plain rows in float32.
template <class T>
struct Head {
    typedef AttentionUnit<T> Unit;
    typedef Granularity<Unit> Grain;
    typedef std::conditional_t<Grain::ENTRIES == 1, float, uint16_t> Number;
    HeadWidth<Unit> k, v;
    int64_t keys;
    Unit *k_copies, *v_copies;            // [keys, units]
    Unit *k_columns, *v_columns;          // [keys / ENTRIES, stride]
    Unit* rows;                           // [QUERY_BLOCK, units]
    Unit *q_units, *d_context_units;      // [units, QUERY_BLOCK]
    Unit *q_columns, *d_context_columns;  // [QUERY_BLOCK / ENTRIES, stride]
    float *scores, *d_weights;            // [keys, QUERY_BLOCK]
    Number *weight_rows, *d_score_rows;   // [keys, QUERY_BLOCK]
    Unit *weights, *d_scores;             // [keys / ENTRIES, QUERY_BLOCK], as put_weight_units lays them out
    float *results, *d_k, *d_v;           // [QUERY_BLOCK, stride], [keys, stride]
    int64_t bytes;

    // `memory` is null for `bytes` alone.
    Head(const Attention& a, char* memory) : k(a.d_k), v(a.d_v), keys(padded(a.keys, Grain::KEYS)) {
        Arena arena{memory};
        k_columns = k_copies = arena.next<Unit>(keys * k.units),
        v_columns = v_copies = arena.next<Unit>(keys * v.units);
        if (Grain::ENTRIES > 1)
            k_columns = arena.next<Unit>(keys * k.units), v_columns = arena.next<Unit>(keys * v.units);
        rows = arena.next<Unit>(QUERY_BLOCK * std::max(k.units, v.units));
        for (auto pointer : {&q_units, &q_columns}) *pointer = arena.next<Unit>(QUERY_BLOCK * k.units);
        for (auto pointer : {&d_context_units, &d_context_columns}) *pointer = arena.next<Unit>(QUERY_BLOCK * v.units);
        for (auto pointer : {&scores, &d_weights}) *pointer = arena.next<float>(keys * QUERY_BLOCK);
        if constexpr (Grain::ENTRIES == 1) {  // weights replace the scores
            weights = weight_rows = scores, d_scores = d_score_rows = d_weights;
            if (a.threshold) weight_rows = arena.next<float>(keys * QUERY_BLOCK);
        } else {
            for (auto pointer : {&weight_rows, &d_score_rows}) *pointer = arena.next<Number>(keys * QUERY_BLOCK);
            weights = d_scores = arena.next<Unit>(keys / Grain::ENTRIES * QUERY_BLOCK);
        }
        results = arena.next<float>(QUERY_BLOCK * std::max(k.stride, v.stride));
        d_k = arena.next<float>(keys * k.stride), d_v = arena.next<float>(keys * v.stride);
        bytes = arena.at - memory;
    }
};

// Copy one row; zeros fill it up to `width` numbers.
template <class T, class Number>
static void copy_row(const T* row, int64_t size, int64_t width, Number* to) {
    int64_t d = 0;
    if constexpr (std::is_same<T, Number>::value) {
        for (; d + 2 * LANES <= size; d += 2 * LANES) memcpy(to + d, row + d, 2 * LANES * sizeof(T));  // fixed size
        for (; d + LANES <= size; d += LANES) memcpy(to + d, row + d, LANES * sizeof(T));
        for (; d < size; d++) to[d] = row[d];
    } else {
        put(row, size, to);
    }
    for (d = size; d < width; d++) to[d] = 0;
}

// Copy rows that `used(row)` accepts, up to `count`; the others are 0.
template <class T, class Used>
static void copy_used_rows(
    const Rows<T>& from, int64_t first, int64_t count, const HeadWidth<AttentionUnit<T>>& width, AttentionUnit<T>* to,
    Used used
) {
    for (int64_t i = first; i < first + count; i++, to += width.units) {
        const auto numbers = reinterpret_cast<typename Head<T>::Number*>(to);
        if (used(i)) copy_row(from[i], width.size, width.stride, numbers);
        else std::fill(numbers, numbers + width.stride, 0);
    }
}

// Interleave neighboring rows, to[row / 2][column]. Rows from `count` on and columns behind the last are 0.
static void interleave_rows(
    const Rows<uint16_t>& from, int64_t count, int64_t rows, int64_t size, int64_t stride, Pair* to
) {
    for (int64_t i = 0; i < rows; i += 2, to += stride) {
        const int64_t width = i < count ? size : 0;
        interleave(i < count ? from[i] : nullptr, i + 1 < count ? from[i + 1] : nullptr, width, to);
        std::fill(to + width, to + stride, Pair{});
    }
}

// Queries of one sequence from `first` on, as rows and as lanes of vectors, and the keys visible to them. Without tiles
// a block ends with a sentence of the row, so that its products have few hidden keys.
template <class Unit>
struct QueryBlock {
    typedef Granularity<Unit> Grain;
    int64_t first, rows, lanes;
    Range keys;

    QueryBlock(const Attention& a, const VisibleKeys& visible, int64_t first)
        : first(first), rows(std::min<int64_t>(QUERY_BLOCK, a.queries - first)) {
        if (!Grain::TILES) rows = visible.connected(first, rows);
        lanes = padded(rows, Grain::COLUMNS);
        const Range range = visible.range(first, first + rows);
        keys = {range.low / Grain::KEYS * Grain::KEYS, padded(range.high, Grain::KEYS)};
    }

    int64_t end() const { return first + rows; }
};

// Copy a block of queries, or of gradients of contexts, transposed and, if `columns` is not null, as columns. In float32
// they are multiplied by `factor`.
template <class T>
static void copy_block(
    const Rows<T>& from, const VisibleKeys& visible, const QueryBlock<AttentionUnit<T>>& block,
    const HeadWidth<AttentionUnit<T>>& width, float factor, const Head<T>& w, AttentionUnit<T>* units,
    AttentionUnit<T>* columns
) {
    enum { SINGLE = Head<T>::Grain::ENTRIES == 1 };
    AttentionUnit<T>* rows = SINGLE && columns ? columns : w.rows;
    for (int64_t i = block.end(); i < block.end() + block.rows; i++) from.fetch(i, width.size);  // of the next block
    copy_used_rows(from, block.first, block.lanes, width, rows, [&](int64_t i) {
        return i < block.end() && visible.any(i);
    });
    if constexpr (SINGLE)
        for (int64_t i = 0; factor != 1.0f && i < block.lanes * width.stride; i += LANES)
            store(rows + i, load(rows + i) * factor);
    for (int64_t unit = 0; unit < width.steps; unit += LANES)
        for (int64_t i = 0; i < block.lanes; i += LANES)
            transpose_square(
                reinterpret_cast<const float*>(rows + i * width.units + unit), width.units,
                reinterpret_cast<float*>(units + unit * QUERY_BLOCK + i), QUERY_BLOCK
            );
    if constexpr (!SINGLE)
        if (columns) {
            const Sequences copies = {rows, 0, 0, width.stride};
            interleave_rows(Rows<T>(copies, 0), block.lanes, block.lanes, width.stride, width.stride, columns);
        }
}

// Keys or values of a head as the left operand of a product, `count` rows, and as the right one, whose steps are keys.
template <class Unit>
struct KeyOperands {
    OperandOf<Unit> rows;
    int64_t count;
    ColumnsOf<Unit> columns;
};

// The operands in float32. Rows are read in place, and so are columns of full vectors if only one block of queries reads
// them: several blocks read a copy, whose rows are closer together.
template <class T>
static KeyOperands<float> key_operands(
    const Attention& a, const Rows<T>& from, const HeadWidth<float>& width, float* copies, float*, bool, bool as_columns
) {
    KeyOperands<float> operands = {adjacent_steps<float>(copies, width.stride), a.keys, {copies, width.stride}};
    if constexpr (std::is_same<T, float>::value) {
        operands.rows = adjacent_steps<float>(from[0], from.stride);
        if (width.size % LANES == 0 && a.group() * a.queries <= QUERY_BLOCK) {
            operands.columns = {from[0], from.stride};
            return operands;
        }
        if (!as_columns) return operands;
    }
    copy_used_rows(from, 0, a.keys, width, copies, [](int64_t) { return true; });
    return operands;
}

#if HAS_BFLOAT16
// The operands in pairs, those that are used. Rows of pairs are read in place without tiles.
static KeyOperands<Pair> key_operands(
    const Attention& a, const Rows<uint16_t>& from, const HeadWidth<Pair>& width, Pair* copies, Pair* columns,
    bool as_rows, bool as_columns
) {
    typedef Granularity<Pair> Grain;
    const int64_t keys = padded(a.keys, Grain::KEYS);
    KeyOperands<Pair> operands = {{}, keys, {columns, width.stride}};
    if (as_columns) interleave_rows(from, a.keys, keys, width.size, width.stride, columns);
    if (!as_rows) return operands;
    const bool aligned = reinterpret_cast<uintptr_t>(from[0]) % sizeof(Pair) == 0;
    if (!Grain::TILES && aligned && width.size % Grain::ENTRIES == 0 && from.stride % Grain::ENTRIES == 0) {
        operands.rows = adjacent_steps(reinterpret_cast<const Pair*>(from[0]), from.stride / Grain::ENTRIES);
        operands.count = a.keys;
        return operands;
    }
    copy_used_rows(from, 0, keys, width, copies, [&](int64_t key) { return key < a.keys; });
    operands.rows = adjacent_steps<Pair>(copies, width.units);
    return operands;
}
#endif
