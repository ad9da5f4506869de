// Paged attention that reads KV blocks in place.
//
// Online softmax (Milakov and Gimelshein, arXiv:1805.02867) keeps a running maximum and sum per row, so that a tile of
// keys is read once (Dao et al., FlashAttention, arXiv:2205.14135). All query heads of a KV head, and adjacent queries of
// a prompt, are rows of one tile.
//
// A row's sums are those of tiles in a span of keys, joined span by span. Tiles and spans begin at fixed positions, so a
// row has the same bits in a prompt, in any part of it, and decoding. Threads share the spans of a decoding query, and a
// span that several sequences share is read once.
#include "paged_attention.h"

#include <atomic>
#include <limits>
#include <type_traits>

#include "kept.h"
#include "pairs.h"
#include "quantized_kv.h"

namespace {

struct Call : QuirePlan, QuireAttention {
    // The first key that a query at a position sees.
    int64_t first_seen(int64_t position) const { return position >= window ? position + 1 - window : 0; }
    template <class T>
    const T* first_key(int64_t head) const {
        return static_cast<const T*>(cache) + head * block_size * key_stride;
    }
    template <class T>
    const T* first_value(int64_t head) const {
        return static_cast<const T*>(cache) + values_at + head * block_size * value_stride;
    }
};

constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();
constexpr float LOG2_E = 1.44269504f;
constexpr int64_t SPAN = QUIRE_SPAN;
constexpr int64_t MOST_IN_PAIRS = 16;  // rows for which bfloat16 is packed in pairs where that has no products
constexpr int64_t MAX_WEIGHED = 16;  // rows of scores
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
constexpr int64_t QUERY_ROWS = PAIR_ROWS;
#else
constexpr int64_t QUERY_ROWS = 16;
#endif

// A thread's memory for one unit.
template <class T>
class Scratch {
  public:
    Scratch(int64_t max_rows, int64_t head_dim, int64_t value_dim, Kept& kept)
        : q_width(round_up(head_dim, DEPTH<T>)), width(round_up(value_dim, PANEL)) {
        const int64_t rows = max_rows + MAX_ROWS<T> - 1;  // a product reads MAX_ROWS from any row
        lay_out(nullptr, rows, head_dim, value_dim);
        lay_out(kept.of<char>(end_ - static_cast<char*>(nullptr)), rows, head_dim, value_dim);
        std::memset(keys, 0, size_t(q_width / LEAST_EACH * TILE) * sizeof(uint32_t));
        std::memset(values, 0, size_t(TILE / LEAST_EACH * width) * sizeof(uint32_t));
        std::memset(zeros, 0, size_t(zeros_size(head_dim, value_dim)));
    }

    const int64_t q_width, width;  // head_dim rounded up to steps, value_dim to panels
    Left<T>* q;         // [rows][q_width]
    uint32_t* keys;     // [q_width / each][TILE]
    uint32_t* values;   // [TILE / each][width]
    float* scores;      // [MAX_ROWS][TILE]
    Left<T>* weights;   // [MAX_ROWS][TILE]
    float* sums;        // [rows][width], weighted values
    float* maxima;      // [rows], maxima of scores; weights are 2^(score - maximum)
    float* totals;      // [rows][W], sums of weights by lane
    // Of all spans so far: sums, weight and maximum.
    float* joined;      // [rows][value_dim + 2]
    float* share;       // [value_dim + 2], of one span
    char* zeros;        // key and value of absent tokens
    // For decoding in bfloat16.
    uint32_t* queries;  // [head_dim / 2][QUERY_ROWS], in pairs
    BFloat16* tail;     // [16][head_dim], [16][value_dim], keys and values of a partial block

  private:
    static constexpr int LEAST_EACH = HAS_PAIRS ? EACH<T> : 1;

    static int64_t zeros_size(int64_t head_dim, int64_t value_dim) {
        return (head_dim > value_dim ? head_dim : value_dim) * int64_t(sizeof(T)) + SCALE_BYTES;
    }

    void lay_out(char* memory, int64_t rows, int64_t head_dim, int64_t value_dim) {
        end_ = memory;
        q = take<Left<T>>(rows * q_width);
        keys = take<uint32_t>(q_width / LEAST_EACH * TILE);
        values = take<uint32_t>(TILE / LEAST_EACH * width);
        scores = take<float>(MAX_ROWS<T> * TILE);
        weights = take<Left<T>>(MAX_ROWS<T> * TILE);
        sums = take<float>(rows * width);
        maxima = take<float>(rows + 16);
        totals = take<float>(rows * W);
        joined = take<float>(rows * (value_dim + 2));
        share = take<float>(value_dim + 2);
        zeros = take<char>(zeros_size(head_dim, value_dim));
#if defined(__AVX512BF16__)
        if (sizeof(T) != 2) return;
        queries = take<uint32_t>(head_dim / 2 * QUERY_ROWS);
        tail = take<BFloat16>(16 * (head_dim + (head_dim > value_dim ? head_dim : value_dim)));
#endif
    }
    template <class X>
    X* take(int64_t count) {
        X* at = reinterpret_cast<X*>(end_);
        end_ += round_up(count * int64_t(sizeof(X)), 64);
        return at;
    }

    char* end_ = nullptr;
};

// x becomes softcap * tanh(scale * x / softcap).
inline void cap_scores(float* x, int64_t columns, float scale, float softcap) {
    const float factor = -2 * LOG2_E * scale / softcap;
    for (int64_t at = 0; at < columns; at += W) {
        const Floats score = load_floats(x + at), e = exp2_of_negative(absolute(score) * factor);
        const Floats capped = softcap * (1.0f - e) / (1.0f + e);
        store(x + at, score > Floats{} ? capped : -capped);
    }
}

// The columns of a tile that a row sees: [first, end).
struct Seen {
    int64_t first, end;
};

// Converts scores to weights: of the columns that each row sees; others become zero. Updates maxima and totals, and
// returns factors for earlier sums. These three have memory for whole vectors of rows; totals are W per row. Not inlined,
// so that it rounds alike everywhere.
template <class To>
__attribute__((noinline)) void weigh(float* scores, int64_t stride, int64_t rows, int64_t columns, const Seen* seen,
                                     float scale, float softcap, To* weights, int64_t weights_stride, float* maxima,
                                     float* totals, float* factors) {
    Floats lanes = Floats{};
    for (int i = 0; i < W; ++i) lanes[i] = float(i);
    float highest[MAX_WEIGHED + W];
    for (int64_t row = 0; row < rows; row += W) store(highest + row, splat(MINUS_INFINITY));
    for (int64_t row = 0; softcap > 0 && row < rows; ++row) cap_scores(scores + row * stride, columns, scale, softcap);
    scale = softcap > 0 ? LOG2_E : scale * LOG2_E;
    for (int64_t row = 0; row < rows; ++row) {
        float* x = scores + row * stride;
        for (int64_t at = 0; at < seen[row].first; at += W)
            store(x + at, lanes < splat(float(seen[row].first - at)) ? splat(MINUS_INFINITY) : load_floats(x + at));
        for (int64_t at = seen[row].end / W * W; at < columns; at += W)
            store(x + at, lanes < splat(float(seen[row].end - at)) ? load_floats(x + at) : splat(MINUS_INFINITY));
        Floats most = load_floats(x);
        for (int64_t at = W; at < columns; at += W) most = max(most, load_floats(x + at));
        highest[row] = reduce_max(most) * scale;
    }
    for (int64_t row = 0; row < rows; row += W) {
        const Floats old = load_floats(maxima + row), now = max(load_floats(highest + row), old);
        store(factors + row, now == old ? splat(1.0f) : exp2_of_negative(old - now));
        store(maxima + row, now);
    }
    for (int64_t row = 0; row < rows; ++row) {
        const float* x = scores + row * stride;
        Floats total = load_floats(totals + row * W) * factors[row];
        const int64_t from = seen[row].first > 0 ? round_up(seen[row].first, W) : 0, to = seen[row].end / W * W;
        const uint64_t num_whole = to > from ? uint64_t(to - from) : 0;
        for (int64_t at = 0; at < columns; at += W) {
            Floats weight = exp2_of_negative<To>(load_floats(x + at) * scale - maxima[row]);
            if (uint64_t(at - from) >= num_whole) {  // a vector that is not seen as a whole
                weight = lanes < splat(float(seen[row].end - at)) ? weight : Floats{};
                weight = lanes < splat(float(seen[row].first - at)) ? Floats{} : weight;
            }
            store_floats(weights + row * weights_stride + at, weight);
            total += weight;
        }
        store(totals + row * W, total);
    }
}

// Adds a span's share to `joined`; both are sums[value_dim], their weight and its exponent. Not inlined, so that prompts
// and decoding round alike.
__attribute__((noinline)) void join_span(const float* share, int64_t value_dim, float* joined) {
    float *weight = joined + value_dim, *maximum = weight + 1;
    const float highest = *maximum > share[value_dim + 1] ? *maximum : share[value_dim + 1];
    const float kept = exp2_of_negative(*maximum - highest), factor = exp2_of_negative(share[value_dim + 1] - highest);
    *weight = kept * *weight + factor * share[value_dim];
    *maximum = highest;
    int64_t dim = 0;
    for (; dim + W <= value_dim; dim += W)
        store(joined + dim, kept * load_floats(joined + dim) + factor * load_floats(share + dim));
    for (; dim < value_dim; ++dim) joined[dim] = kept * joined[dim] + factor * share[dim];
}

inline void clear_joined(int64_t value_dim, float* joined) {
    std::memset(joined, 0, size_t(value_dim + 1) * sizeof(float));
    joined[value_dim + 1] = MINUS_INFINITY;
}

// A unit for one KV head, computed by one thread.
struct Task {
    const QuireUnit& unit;
    const int64_t head;

    Task(const Call& call, int64_t index)
        : unit(call.units[index / call.num_kv_heads]), head(index % call.num_kv_heads) {}

    template <class Stored>
    void find(const Call& call, int64_t first, const char* zeros, TileRows<Stored>& tile) const {
        const int32_t* table = call.block_tables + unit.sequence * call.table_stride;
        tile.find(call.first_key<Stored>(head), call.first_value<Stored>(head), table, call.block_stride, call.block_size,
                  call.key_stride, call.value_stride, first, unit.end_key, reinterpret_cast<const Stored*>(zeros));
    }
};

// The factor of a query's sums in its output. A sink is one more score. Not inlined, so that it rounds alike everywhere.
template <class T>
__attribute__((noinline)) float output_factor(const Call& call, int64_t query_head, float total, float maximum) {
    if (!call.sinks) return 1.0f / total;
    const float sink = to_float(static_cast<const T*>(call.sinks)[query_head]) * LOG2_E;
    const float highest = sink > maximum ? sink : maximum, factor = exp2_of_negative(maximum - highest);
    return factor / (factor * total + exp2_of_negative(sink - highest));
}

// Writes a row's result: the output, or a part to merge.
template <class T>
void finish(const Call& call, const Task& task, int64_t row, const float* sums, float total, float maximum) {
    const QuireUnit& unit = task.unit;
    const int64_t value_dim = call.value_dim, groups = call.num_groups, num_heads = call.num_kv_heads * groups;
    const int64_t query_head = task.head * groups + row % groups;
    if (unit.partial < 0) {
        T* out = static_cast<T*>(call.out) + ((unit.first_token + row / groups) * num_heads + query_head) * value_dim;
        narrow(sums, value_dim, output_factor<T>(call, query_head, total, maximum), out);
    } else {
        float* share = call.partials + ((unit.partial + row / groups) * num_heads + query_head) * (value_dim + 2);
        std::memcpy(share, sums, size_t(value_dim) * sizeof(float));
        share[value_dim] = total;
        share[value_dim + 1] = maximum;
    }
}

// Fills to[head_dim / 2][QUERY_ROWS] with pairs of queries[rows][stride].
inline void pair_queries(const BFloat16* queries, int64_t stride, int64_t rows, int64_t head_dim, uint32_t* to) {
    for (int64_t row = 0; row < rows; ++row, queries += stride)
        for (int64_t dim = 0; dim < head_dim; dim += 2) to[dim / 2 * QUERY_ROWS + row] = load<uint32_t>(queries + dim);
}

#if defined(__AMX_BF16__)
// Scores of a tile's unpacked keys. Nothing is read past the last one: it may be another sequence's.
inline void score_tile(const TileRows<BFloat16>& tile, int64_t head_dim, int64_t rows, Scratch<BFloat16>& scratch,
                       Ahead& ahead) {
    for (int64_t token = 0; token < tile.count; token += 16) {
        const BFloat16* keys = tile.keys[token];
        if (tile.count - token < 16) {
            const size_t bytes = size_t((tile.count - token) * head_dim) * sizeof(BFloat16);
            std::memset(scratch.tail, 0, size_t(16 * head_dim) * sizeof(BFloat16));
            keys = static_cast<BFloat16*>(std::memcpy(scratch.tail, keys, bytes));
        }
        ahead(int(head_dim / 2));
        score_keys(keys, head_dim, scratch.queries, rows, scratch.scores + token, TILE);
        ahead(int(head_dim / 2));
    }
}
#endif

// each: numbers in a packed word. tile: the unit's first tile; on return, the first tile of `following`.
template <class T, int each, class Stored>
void attend(const Call& call, const Task& task, const Task* following, TileRows<Stored>& tile, Scratch<T>& scratch) {
    const QuireUnit& unit = task.unit;
    const int64_t head_dim = call.head_dim, value_dim = call.value_dim, groups = call.num_groups;
    const int64_t width = scratch.width, q_width = scratch.q_width;
    const int64_t num_rows = unit.num_queries * groups;  // row = query * groups + member of the group
    const T* q = static_cast<const T*>(call.q) + unit.first_token * call.q_token_stride +
                 task.head * groups * call.q_head_stride;
    for (int64_t row = 0; row < num_rows; ++row) {
        const T* from = q + row / groups * call.q_token_stride + row % groups * call.q_head_stride;
        take_query(from, head_dim, q_width, scratch.q + row * q_width);
    }
    // Queries before a tile or span do not attend to it, nor those whose windows begin at its end or later.
    const auto first_row = [&](int64_t key) {
        return key > unit.first_position ? (key - unit.first_position) * groups : 0;
    };
    const auto end_row = [&](int64_t end) {
        const int64_t queries = end - 1 - unit.first_position;  // that see a key before `end`, less the window
        return queries >= unit.num_queries - call.window ? num_rows : (queries + call.window) * groups;
    };
    const int64_t depth = HAS_PAIRS ? q_width : round_up(head_dim, each);
    const bool is_joined = unit.end_key - unit.first_key > SPAN;
    // One query uses keys once, so packing them does not pay. Both ways sum in the same order.
    constexpr bool may_keep = USES_TILES<T> && std::is_same_v<T, Stored>;
    const bool keeps_keys = may_keep && unit.num_queries == 1 && groups <= QUERY_ROWS &&
                            call.block_size % 16 == 0 && head_dim % DEPTH<T> == 0;
    if constexpr (may_keep)
        if (keeps_keys) pair_queries(scratch.q, q_width, groups, head_dim, scratch.queries);
    const int64_t stride = value_dim + 2;
    for (int64_t row = 0; is_joined && row < num_rows; ++row) clear_joined(value_dim, scratch.joined + row * stride);
    for (int64_t span = unit.first_key; span < unit.end_key; span += SPAN) {
        const int64_t end = span + SPAN < unit.end_key ? span + SPAN : unit.end_key;
        for (int64_t row = first_row(span); row < num_rows; ++row) scratch.maxima[row] = MINUS_INFINITY;
        std::memset(scratch.sums, 0, size_t(num_rows * width) * sizeof(float));
        std::memset(scratch.totals, 0, size_t(num_rows * W) * sizeof(float));
        for (int64_t first = span; first < end; first += TILE) {
            TileRows<Stored> next;
            if (first + TILE < unit.end_key)
                task.find(call, first + TILE, scratch.zeros, next);
            else if (following)
                following->find(call, following->unit.first_key, scratch.zeros, next);
            Ahead ahead(next, call.key_stride, call.stores_values ? call.value_stride : 0);
            if (!keeps_keys) pack_keys<each>(tile, round_up(tile.count, PANEL), head_dim, scratch.keys, ahead);
            pack_values<each>(tile, value_dim, width, DEPTH<T>, scratch.values, ahead);
            const int64_t tile_end_row = end_row(first + TILE);
            for (int64_t row = first_row(first), rows; row < tile_end_row; row += rows) {
                rows = tile_end_row - row < MAX_ROWS<T> ? tile_end_row - row : MAX_ROWS<T>;
                float factors[MAX_ROWS<T> + W];
                Seen seen[MAX_ROWS<T>];
                for (int64_t i = 0; i < rows; ++i) {
                    const int64_t position = unit.first_position + (row + i) / groups;
                    seen[i] = {call.first_seen(position) - first, position + 1 - first};
                    if (seen[i].end > tile.count) seen[i].end = tile.count;
                }
                const int64_t most_seen = seen[rows - 1].end, columns = round_up(most_seen, PANEL);
                if constexpr (may_keep)
                    if (keeps_keys) score_tile(tile, head_dim, groups, scratch, ahead);
                if (!keeps_keys)
                    multiply<T, each>(scratch.q + row * q_width, q_width, scratch.keys, TILE, scratch.scores, TILE, depth,
                                      columns, nullptr, rows, ahead);
                weigh(scratch.scores, TILE, rows, columns, seen, call.scale, call.softcap, scratch.weights, TILE,
                      scratch.maxima + row, scratch.totals + row * W, factors);
                multiply<T, each>(scratch.weights, TILE, scratch.values, width, scratch.sums + row * width, width,
                                  round_up(most_seen, DEPTH<T>), width, factors, rows, ahead);
            }
            tile = next;
        }
        for (int64_t row = first_row(span); row < end_row(span + SPAN); ++row) {
            float* sums = scratch.sums + row * width;
            const float total = reduce_sum(load_floats(scratch.totals + row * W));
            if (!is_joined) {
                finish<T>(call, task, row, sums, total, scratch.maxima[row]);
                continue;
            }
            float* share = scratch.share;
            std::memcpy(share, sums, size_t(value_dim) * sizeof(float));
            share[value_dim] = total;
            share[value_dim + 1] = scratch.maxima[row];
            join_span(share, value_dim, scratch.joined + row * stride);
        }
    }
    for (int64_t row = 0; is_joined && row < num_rows; ++row) {
        const float* joined = scratch.joined + row * stride;
        finish<T>(call, task, row, joined, joined[value_dim], joined[value_dim + 1]);
    }
}

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
// The pieces of 16 keys and values of a unit's span.
struct Pieces {
    const BFloat16 *keys[SPAN / 16], *values[SPAN / 16];
    int64_t count = 0;

    void find(const Call& call, const Task& task) {
        const int64_t first = task.unit.first_key;
        const BFloat16 *key = call.first_key<BFloat16>(task.head), *value = call.first_value<BFloat16>(task.head);
        const int32_t* table = call.block_tables + task.unit.sequence * call.table_stride;
        const int64_t end = task.unit.end_key - first < SPAN ? task.unit.end_key : first + SPAN;
        count = 0;
        for (int64_t token = first; token < end; token += 16, ++count) {
            const int64_t start = table[token / call.block_size] * call.block_stride, offset = token % call.block_size;
            keys[count] = key + start + offset * call.head_dim;
            values[count] = value + start + offset * call.value_stride;
        }
    }
};

// Attends to a span with products of pairs (pairs.h), tile by tile as `attend` does.
// ahead: one piece per piece of values, to prefetch.
template <int rows>
void attend_rows(const Call& call, const Task& task, const Pieces& pieces, const BFloat16* const* ahead,
                 Scratch<BFloat16>& scratch) {
    constexpr int64_t each = TILE / 16;
    const QuireUnit& unit = task.unit;
    const int64_t head_dim = call.head_dim, value_dim = call.value_dim, num_keys = unit.end_key - unit.first_key;
    const int64_t seen_from = call.first_seen(unit.first_position) - unit.first_key;
    const int64_t first_piece = seen_from > 0 ? seen_from / TILE * each : 0;
    pair_queries(static_cast<const BFloat16*>(call.q) + unit.first_token * call.q_token_stride +
                     task.head * rows * call.q_head_stride,
                 call.q_head_stride, rows, head_dim, scratch.queries);
    std::memset(scratch.totals, 0, size_t(rows * W) * sizeof(float));
    store(scratch.maxima, splat(MINUS_INFINITY));
    for (int64_t first = first_piece; first < pieces.count; first += each) {
        const int64_t count = pieces.count - first < each ? pieces.count - first : each;
        for (int64_t piece = first; piece < first + count; ++piece)
            score_keys<rows>(pieces.keys[piece], head_dim, scratch.queries, scratch.scores + (piece - first) * 16, TILE,
                             pieces.values[piece]);
        const int64_t left = num_keys - first * 16;
        Seen seen[PAIR_ROWS];
        float factors[PAIR_ROWS + W];
        for (Seen& each_row : seen) each_row = {seen_from - first * 16, left < TILE ? left : TILE};
        weigh(scratch.scores, TILE, rows, count * 16, seen, call.scale, call.softcap, scratch.weights, TILE,
              scratch.maxima, scratch.totals, factors);
        constexpr int vectors = rows <= 4 ? 4 : 2;  // more with few rows, which would wait for their own sums
        const auto sum = [&](auto vectors) {
            sum_values<rows, vectors>(pieces.values + first, ahead + first, count, value_dim, call.value_stride,
                                      scratch.weights, TILE, scratch.sums, first > first_piece ? factors : nullptr);
        };
        if (value_dim % (vectors * W) == 0)
            sum(std::integral_constant<int, vectors>{});
        else
            sum(std::integral_constant<int, 2>{});
    }
    for (int64_t row = 0; row < rows; ++row)
        finish<BFloat16>(call, task, row, scratch.sums + row * value_dim, reduce_sum(load_floats(scratch.totals + row * W)),
               scratch.maxima[row]);
}

// pieces: the unit's; on return, those of `following`.
void attend_span(const Call& call, const Task& task, const Task* following,
                 Pieces& pieces, Scratch<BFloat16>& scratch) {
    const QuireUnit& unit = task.unit;
    const int64_t head_dim = call.head_dim, value_stride = call.value_stride;
    const int64_t tail = (unit.end_key - unit.first_key) % 16;
    if (tail) {  // never read another sequence's data
        const int64_t last = pieces.count - 1;
        BFloat16 *keys = scratch.tail, *values = keys + 16 * head_dim;
        std::memset(keys, 0, size_t(16 * (head_dim + value_stride)) * sizeof(BFloat16));
        std::memcpy(keys, pieces.keys[last], size_t(tail * head_dim) * sizeof(BFloat16));
        std::memcpy(values, pieces.values[last], size_t(tail * value_stride) * sizeof(BFloat16));
        pieces.keys[last] = keys;
        pieces.values[last] = values;
    }
    Pieces next;
    if (following) next.find(call, *following);
    const BFloat16* ahead[SPAN / 16];
    for (int64_t part = 0; part < pieces.count; ++part)
        ahead[part] = part < next.count ? next.keys[part] : pieces.values[part];
    with_rows<PAIR_ROWS>(call.num_groups, [&](auto rows) { attend_rows<rows>(call, task, pieces, ahead, scratch); });
    pieces = next;
}
#endif

// Merges the spans of one query and head.
template <class T>
void merge(const Call& call, const QuireMerge& merge, int64_t head, Scratch<T>& scratch) {
    const int64_t value_dim = call.value_dim, num_heads = call.num_kv_heads * call.num_groups;
    const int64_t stride = num_heads * (value_dim + 2);
    const float* shares = call.partials + head * (value_dim + 2);
    float* joined = scratch.joined;
    clear_joined(value_dim, joined);
    for (int64_t i = 0; i < merge.num_places; ++i)
        join_span(shares + call.places[merge.first_place + i] * stride, value_dim, joined);
    narrow(joined, value_dim, output_factor<T>(call, head, joined[value_dim], joined[value_dim + 1]),
           static_cast<T*>(call.out) + (merge.token * num_heads + head) * value_dim);
}

// Stores a token's K and V in its slot.
template <class T, class Stored>
void write(const Call& call, int64_t token) {
    const int64_t slot = call.slot_mapping[token];
    if (slot < 0) return;
    Stored* layer = static_cast<Stored*>(call.cache) + slot / call.block_size * call.block_stride;
    const int64_t offset = slot % call.block_size;
    Stored *keys = layer + offset * call.key_stride, *values = layer + call.values_at + offset * call.value_stride;
    const T* k = static_cast<const T*>(call.k) + token * call.k_token_stride;
    for (int64_t head = 0; head < call.num_kv_heads; ++head)
        store_row(k + head * call.k_head_stride, call.head_dim, keys + head * call.block_size * call.key_stride);
    if (!call.stores_values) return;
    const T* v = static_cast<const T*>(call.v) + token * call.v_token_stride;
    for (int64_t head = 0; head < call.num_kv_heads; ++head)
        store_row(v + head * call.v_head_stride, call.value_dim, values + head * call.block_size * call.value_stride);
}

// A shared queue of tasks. A thread knows its next task in advance, to prefetch its first keys.
template <class T, class Stored>
void attend_all(const Call& call, std::atomic<int64_t>& turn, Scratch<T>& scratch) {
    const int64_t num_tasks = call.num_units * call.num_kv_heads;
#if defined(__AMX_BF16__)
    const Tiles tiles;
#endif
    TileRows<Stored> tile;
    for (int64_t index = turn++, next; index < num_tasks; index = next) {
        next = turn++;
        const Task task(call, index), following(call, next < num_tasks ? next : index);
        if (!tile.count) task.find(call, task.unit.first_key, scratch.zeros, tile);
        const Task* after = next < num_tasks ? &following : nullptr;
        if constexpr (!HAS_PAIRS && std::is_same_v<T, Stored>)
            if (task.unit.num_queries * call.num_groups > MOST_IN_PAIRS) {
                attend<T, 1>(call, task, after, tile, scratch);
                continue;
            }
        attend<T, EACH_OF<T, Stored>>(call, task, after, tile, scratch);
    }
}

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
// Whether to read a unit's keys and values in place. Packing them pays where several queries share them.
bool reads_in_place(const Call& call, const QuireUnit& unit) {
    return unit.num_queries == 1 && call.num_groups <= PAIR_ROWS && call.head_dim % (2 * W) == 0 &&
           call.value_dim % (2 * W) == 0 && call.block_size % 16 == 0 && unit.end_key - unit.first_key <= SPAN;
}

template <>
void attend_all<BFloat16, BFloat16>(const Call& call, std::atomic<int64_t>& turn, Scratch<BFloat16>& scratch) {
    const int64_t num_tasks = call.num_units * call.num_kv_heads;
    TileRows<BFloat16> tile;
    Pieces pieces;
    for (int64_t index = turn++, next; index < num_tasks; index = next) {
        next = turn++;
        const Task task(call, index), following(call, next < num_tasks ? next : index);
        if (reads_in_place(call, task.unit)) {
            if (!pieces.count) pieces.find(call, task);
            attend_span(call, task, next < num_tasks ? &following : nullptr, pieces, scratch);
        } else {
            task.find(call, task.unit.first_key, scratch.zeros, tile);
            attend<BFloat16, 2>(call, task, nullptr, tile, scratch);
            pieces.count = 0;
        }
    }
}
#endif

template <class T, class Stored = T>
void run(const Call& call) {
    int64_t max_queries = 1;
    for (int64_t i = 0; i < call.num_units; ++i)
        max_queries = call.units[i].num_queries > max_queries ? call.units[i].num_queries : max_queries;
    const int64_t num_heads = call.num_kv_heads * call.num_groups;
    std::atomic<int64_t> turn{0};
#pragma omp parallel num_threads(call.num_threads) if (call.num_threads > 1)
    {
        static thread_local Kept kept;
        Scratch<T> scratch(max_queries * call.num_groups, call.head_dim, call.value_dim, kept);
#pragma omp for schedule(static)
        for (int64_t token = 0; token < (call.k ? call.num_tokens : 0); ++token) write<T, Stored>(call, token);
        // All writes of the layer are done here: sequences may share blocks that this step fills.
        attend_all<T, Stored>(call, turn, scratch);
#pragma omp barrier
#pragma omp for schedule(static)
        for (int64_t i = 0; i < call.num_merges * num_heads; ++i)
            merge<T>(call, call.merges[i / num_heads], i % num_heads, scratch);
    }
}

}  // namespace

void quire_attend_float32(const QuireAttention* call) { run<float>({*call->plan, *call}); }
void quire_attend_bfloat16(const QuireAttention* call) { run<BFloat16>({*call->plan, *call}); }
void quire_attend_float32_int8(const QuireAttention* call) { run<float, Quantized>({*call->plan, *call}); }
void quire_attend_bfloat16_int8(const QuireAttention* call) { run<BFloat16, Quantized>({*call->plan, *call}); }
