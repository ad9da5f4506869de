// Paged attention that reads KV blocks where they lie.
//
// Softmax goes along with the keys (Milakov and Gimelshein, arXiv:1805.02867): a running maximum and a running sum for
// each row, so that a tile of keys is read once (Dao et al., FlashAttention, arXiv:2205.14135). All query heads of a KV
// head are rows of one tile, and so are neighbouring queries of a prompt. A decoding query's keys are cut into spans,
// which threads take in turns and whose shares are added up at the end. A span's length does not depend on the batch
// or the threads, and so neither does any sum's order.
#include "paged_attention.h"

#include <cstdlib>
#include <limits>
#include <memory>

#include "tile.h"

namespace {

constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();
constexpr float LOG2_E = 1.44269504f;

// A thread's own memory for one unit, of so many rows.
template <class T>
class Scratch {
  public:
    Scratch(int64_t max_rows, int64_t head_dim) : width(round_up(head_dim, PANEL)) {
        const int64_t sizes[] = {max_rows * width, head_dim * TILE, TILE * width, MAX_ROWS * TILE, max_rows * width,
                                 max_rows, max_rows * W, width};
        float** const places[] = {&q, &keys, &values, &scores, &sums, &maxima, &weights, &zeros};
        int64_t total = 0;
        for (int64_t size : sizes) total += round_up(size, 16);
        memory_.reset(static_cast<float*>(std::aligned_alloc(64, size_t(total) * sizeof(float))));
        if (!memory_) std::abort();
        float* at = memory_.get();
        for (int i = 0; i < 8; at += round_up(sizes[i], 16), ++i) *places[i] = at;
        std::memset(zeros, 0, size_t(width) * sizeof(float));
    }

    const int64_t width;  // head_dim in whole panels
    float *q;             // [rows][width], scaled
    float *keys;          // [head_dim][TILE]
    float *values;        // [TILE][width]
    float *scores;        // [MAX_ROWS][TILE]
    float *sums;          // [rows][width], of values by weight
    float *maxima;        // [rows], of scores; weights are 2^(score - maximum)
    float *weights;       // [rows][W], their sum, lane by lane
    float *zeros;         // [width], the key and value of tokens that are not there

  private:
    struct Free {
        void operator()(float* memory) const { std::free(memory); }
    };
    std::unique_ptr<float, Free> memory_;
};

// Turns a tile's scores of one row into weights. Returns the factor for what was summed before.
inline float weigh(float* scores, int64_t num_seen, float& maximum, float* weights) {
    Floats lanes = Floats{};
    for (int i = 0; i < W; ++i) lanes[i] = float(i);
    Floats tile_maximum = splat(MINUS_INFINITY);
    for (int at = 0; at < TILE; at += W) {
        Floats x = load_floats(scores + at);
        if (num_seen < at + W) {
            x = lanes < splat(float(num_seen - at)) ? x : splat(MINUS_INFINITY);
            store(scores + at, x);
        }
        tile_maximum = max(tile_maximum, x);
    }
    const float old = maximum, highest = reduce_max(tile_maximum);
    maximum = highest > old ? highest : old;
    const float factor = maximum == old ? 1.0f : exp2_of_negative(old - maximum);
    Floats sum = load_floats(weights) * factor;
    for (int at = 0; at < TILE; at += W) {
        const Floats weight = exp2_of_negative(load_floats(scores + at) - maximum);
        store(scores + at, weight);
        sum += weight;
    }
    store(weights, sum);
    return factor;
}

// One unit, for one KV head.
template <class T>
void attend(const QuireAttention& call, const QuireUnit& unit, int64_t head, Scratch<T>& scratch) {
    const int64_t head_dim = call.head_dim, width = scratch.width, groups = call.num_groups;
    const int64_t num_rows = unit.num_queries * groups;  // row = query * groups + member of the group
    const int64_t num_heads = call.num_kv_heads * groups;
    const T* q = static_cast<const T*>(call.q) + unit.first_token * call.q_token_stride + head * groups * call.q_head_stride;
    for (int64_t row = 0; row < num_rows; ++row) {
        const T* from = q + row / groups * call.q_token_stride + row % groups * call.q_head_stride;
        widen(from, head_dim, width, call.scale * LOG2_E, scratch.q + row * width);
        scratch.maxima[row] = MINUS_INFINITY;
    }
    std::memset(scratch.sums, 0, size_t(num_rows * width) * sizeof(float));
    std::memset(scratch.weights, 0, size_t(num_rows * W) * sizeof(float));

    const int64_t head_size = call.block_size * head_dim, to_values = call.num_kv_heads * head_size;
    const T* layer = static_cast<const T*>(call.cache) + head * head_size;
    const T* zeros = reinterpret_cast<const T*>(scratch.zeros);
    const int32_t* table = call.block_tables + unit.sequence * call.table_stride;
    TileRows<T> tiles[2];
    auto find = [&](TileRows<T>& tile, int64_t first) {
        tile.find(layer, table, call.block_stride, call.block_size, head_dim, to_values, first, unit.end_key, zeros);
    };
    find(tiles[0], unit.first_key);
    for (int64_t first = unit.first_key, turn = 0; first < unit.end_key; first += TILE, turn ^= 1) {
        const TileRows<T>& tile = tiles[turn];
        find(tiles[turn ^ 1], first + TILE < unit.end_key ? first + TILE : unit.end_key);
        Ahead ahead(tiles[turn ^ 1], head_dim);
        pack_keys(tile, head_dim, scratch.keys);
        pack_values(tile, head_dim, width, scratch.values);
        // Queries before the tile see nothing of it.
        const int64_t num_before = first - unit.first_position;
        for (int64_t row = num_before > 0 ? num_before * groups : 0; row < num_rows;) {
            with_rows(num_rows - row, [&](auto rows) {
                float factors[rows];
                multiply<rows>(scratch.q + row * width, width, scratch.keys, TILE, scratch.scores, TILE, head_dim, TILE,
                               nullptr, ahead);
                for (int i = 0; i < rows; ++i) {
                    const int64_t num_seen = unit.first_position + (row + i) / groups + 1 - first;
                    factors[i] = weigh(scratch.scores + i * TILE, num_seen < tile.count ? num_seen : tile.count,
                                       scratch.maxima[row + i], scratch.weights + (row + i) * W);
                }
                multiply<rows>(scratch.scores, TILE, scratch.values, width, scratch.sums + row * width, width,
                               tile.count, width, factors, ahead);
                row += rows;
            });
        }
    }

    for (int64_t row = 0; row < num_rows; ++row) {
        const float* sums = scratch.sums + row * width;
        const float weight = reduce_sum(load_floats(scratch.weights + row * W));
        const int64_t query = row / groups, query_head = head * groups + row % groups;
        if (unit.partial < 0) {
            T* out = static_cast<T*>(call.out) + ((unit.first_token + query) * num_heads + query_head) * head_dim;
            narrow(sums, head_dim, 1.0f / weight, out);
        } else {
            float* share = call.partials + (unit.partial * num_heads + query_head) * (head_dim + 2);
            std::memcpy(share, sums, size_t(head_dim) * sizeof(float));
            share[head_dim] = weight;
            share[head_dim + 1] = scratch.maxima[row];
        }
    }
}

// The spans of one query and head, added up.
template <class T>
void merge(const QuireAttention& call, const QuireMerge& merge, int64_t head, Scratch<T>& scratch) {
    const int64_t head_dim = call.head_dim, num_heads = call.num_kv_heads * call.num_groups;
    const int64_t stride = num_heads * (head_dim + 2);
    const float* shares = call.partials + merge.first_partial * stride + head * (head_dim + 2);
    float maximum = MINUS_INFINITY, weight = 0;
    for (int64_t i = 0; i < merge.num_partials; ++i) {
        const float exponent = shares[i * stride + head_dim + 1];
        maximum = exponent > maximum ? exponent : maximum;
    }
    std::memset(scratch.sums, 0, size_t(head_dim) * sizeof(float));
    for (int64_t i = 0; i < merge.num_partials; ++i) {
        const float* share = shares + i * stride;
        const float factor = exp2_of_negative(share[head_dim + 1] - maximum);
        weight += factor * share[head_dim];
        for (int64_t dim = 0; dim < head_dim; ++dim) scratch.sums[dim] += factor * share[dim];
    }
    narrow(scratch.sums, head_dim, 1.0f / weight, static_cast<T*>(call.out) + (merge.token * num_heads + head) * head_dim);
}

// Stores a token's K and V in its slot.
template <class T>
void write(const QuireAttention& call, int64_t token) {
    const int64_t slot = call.slot_mapping[token];
    if (slot < 0) return;
    const int64_t head_size = call.block_size * call.head_dim;
    T* keys = static_cast<T*>(call.cache) + slot / call.block_size * call.block_stride +
              slot % call.block_size * call.head_dim;
    T* values = keys + call.num_kv_heads * head_size;
    const T* k = static_cast<const T*>(call.k) + token * call.k_token_stride;
    const T* v = static_cast<const T*>(call.v) + token * call.v_token_stride;
    for (int64_t head = 0; head < call.num_kv_heads; ++head) {
        std::memcpy(keys + head * head_size, k + head * call.k_head_stride, size_t(call.head_dim) * sizeof(T));
        std::memcpy(values + head * head_size, v + head * call.v_head_stride, size_t(call.head_dim) * sizeof(T));
    }
}

template <class T>
void run(const QuireAttention& call) {
    int64_t max_queries = 1;
    for (int64_t i = 0; i < call.num_units; ++i)
        max_queries = call.units[i].num_queries > max_queries ? call.units[i].num_queries : max_queries;
    const int64_t heads = call.num_kv_heads, num_heads = heads * call.num_groups;
#pragma omp parallel num_threads(call.num_threads) if (call.num_threads > 1)
    {
        Scratch<T> scratch(max_queries * call.num_groups, call.head_dim);
#pragma omp for schedule(static)
        for (int64_t token = 0; token < call.num_tokens; ++token) write<T>(call, token);
        // All of a layer's writes are done here: sequences may share blocks that this very step fills.
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < call.num_units * heads; ++i) attend<T>(call, call.units[i / heads], i % heads, scratch);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < call.num_merges * num_heads; ++i)
            merge<T>(call, call.merges[i / num_heads], i % num_heads, scratch);
    }
}

}  // namespace

void quire_attend_float32(const QuireAttention* call) { run<float>(*call); }
void quire_attend_bfloat16(const QuireAttention* call) { run<BFloat16>(*call); }
