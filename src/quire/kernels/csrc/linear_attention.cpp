// Linear attention, token by token. Threads have sequences and value heads of their own; a head's S is processed by tiles
// of columns, which stay in the L1 cache for a chunk of tokens.
#include "linear_attention.h"

#include <cmath>

#include "activations.h"
#include "kept.h"
#include "recurrent.h"

namespace {

using Call = QuireLinearAttention;
enum class Rule { GATED_DELTA, MAMBA2 };

constexpr int64_t HISTORY = 3;  // inputs of the convolution before a token's own
constexpr int64_t TILE = 32;    // columns
constexpr int WIDTH = TILE / W;
constexpr int64_t MOST_HEADS = 8;            // of Mamba-2 that one thread computes together; they share a key head
constexpr int TOGETHER = W >= 16 ? 4 : 1;    // tokens of Mamba-2 for which a row of S stays in registers

// One token of the gated delta rule in one tile. Never inlined, so that all tokens have the same instructions.
__attribute__((noinline)) void update(const float* from, float* to, const float* q, const float* k, const float* v,
                                      int64_t k_dim, float decay, float beta, float* out) {
    Floats even[WIDTH] = {}, odd[WIDTH] = {}, delta[WIDTH], sums[WIDTH] = {};
    for (int64_t i = 0; i < k_dim; i += 2) {
        const float* row = from + i * WIDTH * W;
        for (int w = 0; w < WIDTH; ++w) even[w] = fused(splat(k[i]), load_floats(row + w * W), even[w]);
        for (int w = 0; w < WIDTH; ++w) odd[w] = fused(splat(k[i + 1]), load_floats(row + (WIDTH + w) * W), odd[w]);
    }
    for (int w = 0; w < WIDTH; ++w)
        delta[w] = (load_floats(v + w * W) - (even[w] + odd[w]) * decay) * beta;
    for (int64_t i = 0; i < k_dim; ++i)
        for (int w = 0; w < WIDTH; ++w) {
            const int64_t at = (i * WIDTH + w) * W;
            const Floats s = fused(splat(k[i]), delta[w], load_floats(from + at) * decay);
            store_floats(to + at, s);
            sums[w] = fused(splat(q[i]), s, sums[w]);
        }
    for (int w = 0; w < WIDTH; ++w) store_floats(out + w * W, sums[w]);
}

// Some tokens of Mamba-2 in one tile, with values and sums in rows of `stride`. Each has the bits that it has alone.
template <int TOKENS>
__attribute__((noinline)) void accumulate(const float* from, float* to, const float* q, const float* k, const float* v,
                                          int64_t k_dim, int64_t stride, const float* decay, const float* step,
                                          float* out) {
    Floats added[TOKENS][WIDTH], sums[TOKENS][WIDTH] = {};
    for (int t = 0; t < TOKENS; ++t)
        for (int w = 0; w < WIDTH; ++w) added[t][w] = load_floats(v + t * stride + w * W) * step[t];
    for (int64_t i = 0; i < k_dim; ++i)
        for (int w = 0; w < WIDTH; ++w) {
            const int64_t at = (i * WIDTH + w) * W;
            Floats s = load_floats(from + at);
            for (int t = 0; t < TOKENS; ++t) {
                s = fused(splat(k[t * k_dim + i]), added[t][w], s * decay[t]);
                sums[t][w] = fused(splat(q[t * k_dim + i]), s, sums[t][w]);
            }
            store_floats(to + at, s);
        }
    for (int t = 0; t < TOKENS; ++t)
        for (int w = 0; w < WIDTH; ++w) store_floats(out + t * stride + w * W, sums[t][w]);
}

template <class T>
inline float sum_of_squares(const T* x, int64_t size) {
    Floats sum = {};
    for (int64_t at = 0; at < size; at += W) sum = fused(load_floats(x + at), load_floats(x + at), sum);
    return reduce_sum(sum);
}

inline void scale(float* x, int64_t size, float factor) {
    for (int64_t at = 0; at < size; at += W) store_floats(x + at, load_floats(x + at) * factor);
}

inline float softplus(float x) { return std::fmax(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))); }
inline float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

struct Layer {
    const Call& call;
    const int64_t groups = call.num_v_heads / call.num_k_heads, key_size = call.num_k_heads * call.k_dim,
                  channels = 2 * key_size + call.num_v_heads * call.v_dim;
    const States states{*call.plan, call.states};

    float* state(int64_t block) const { return states.of(block); }
    float* matrix(int64_t block, int64_t head) const {
        return state(block) + HISTORY * channels + head * call.k_dim * call.v_dim;
    }
};

// Convolved channels of one head.
template <class T>
struct Channels : Window<HISTORY> {
    const Call& call;
    const T* x;  // inputs of row 0
    float* out;  // [CHUNK][size]

    // Convolves the next rows.
    void next(int64_t row, int64_t count) const {
        const float* bias = call.conv_bias ? call.conv_bias + first : nullptr;
        Window::next(
            count, call.conv,
            [&](int64_t i, int64_t at) { return load_floats(x + (row + i) * call.row_stride + at); },
            [&](int64_t i, int64_t at, Floats sum) {
                if (bias) sum += load_floats(bias + at);
                store_floats(out + i * size + at, silu_exact(sum));
            });
    }
};

// Value heads of one key head, in one sequence.
template <class T, Rule RULE>
struct Heads {
    const Layer& layer;
    const Call& call = layer.call;
    const int64_t first, count, k_dim = call.k_dim, v_dim = call.v_dim, key_head = first / layer.groups;
    float* memory;                   // free
    float *sums, *v_out, *v_inputs;  // [CHUNK][v_dim]; as Channels::out, for one head at a time; by head
    const Channels<T> q, k;

    Heads(const Layer& layer, int64_t first, int64_t count, float* memory)
        : layer(layer), first(first), count(count), memory(memory), sums(take(CHUNK * v_dim)),
          v_out(take(CHUNK * v_dim)), v_inputs(take(count * inputs_size(v_dim))), q(keys(call.q, key_head * k_dim)),
          k(keys(call.k, layer.key_size + key_head * k_dim)) {}

    static int64_t inputs_size(int64_t size) { return (HISTORY + CHUNK) * size; }
    static int64_t floats(const Call& call) {
        return 2 * (inputs_size(call.k_dim) + CHUNK * call.k_dim) + 2 * CHUNK * call.v_dim +
               MOST_HEADS * inputs_size(call.v_dim);
    }
    float* take(int64_t size) { return (memory += size) - size; }
    Channels<T> keys(const void* x, int64_t channel) {
        float *inputs = take(inputs_size(k_dim)), *out = take(CHUNK * k_dim);
        return {{channel, k_dim, layer.channels, inputs}, call, static_cast<const T*>(x) + key_head * call.key_step, out};
    }
    Channels<T> values(int64_t head) const {
        const T* x = static_cast<const T*>(call.v) + key_head * call.value_step + head % layer.groups * v_dim;
        float* inputs = v_inputs + (head - first) * inputs_size(v_dim);
        return {{2 * layer.key_size + head * v_dim, v_dim, layer.channels, inputs}, call, x, v_out};
    }

    // `history`: the last inputs of all queries and keys before the first run, [HISTORY][2 * key_size].
    void compute(const Run* begin, const Run* end, const float* history) const {
        q.begin(history + q.first, 2 * layer.key_size);
        k.begin(history + k.first, 2 * layer.key_size);
        const float* source = begin->source < 0 ? nullptr : layer.state(begin->source);
        for (int64_t head = first; head < first + count; ++head) {
            const Channels<T> v = values(head);
            v.begin(source ? source + v.first : nullptr, layer.channels);
        }
        for (const Run* run = begin; run < end; ++run) {
            for (int64_t row = run->first; row < run->end; row += CHUNK)
                chunk(*run, row, std::min(CHUNK, run->end - row));
            float* target = layer.state(run->target);
            for (int64_t head = first; head < first + count; ++head) values(head).save(target);
            if (first % layer.groups == 0) {
                q.save(target);
                k.save(target);
            }
        }
    }

    void chunk(const Run& run, int64_t row, int64_t num_tokens) const {
        q.next(row, num_tokens);
        k.next(row, num_tokens);
        for (int64_t i = 0; RULE == Rule::GATED_DELTA && i < num_tokens; ++i) {
            float *query = q.out + i * k_dim, *key = k.out + i * k_dim;
            scale(key, k_dim, 1 / std::sqrt(sum_of_squares(key, k_dim) + 1e-6f));
            scale(query, k_dim, 1 / std::sqrt((sum_of_squares(query, k_dim) + 1e-6f) * float(k_dim)));
        }
        for (int64_t head = first; head < first + count; ++head) {
            float* to = layer.matrix(run.target, head);
            const float* from = to;
            if (row == run.first && run.source < 0)
                std::memset(to, 0, size_t(k_dim * v_dim) * sizeof(float));
            else if (row == run.first)
                from = layer.matrix(run.source, head);
            values(head).next(row, num_tokens);
            update_head(head, row, num_tokens, from, to);
            for (int64_t i = 0; i < num_tokens; ++i) finish(head, row + i, sums + i * v_dim, v_out + i * v_dim);
        }
    }

    void update_head(int64_t head, int64_t row, int64_t num_tokens, const float* from, float* to) const {
        float decay[CHUNK], weight[CHUNK];
        for (int64_t i = 0; i < num_tokens; ++i) {
            const int64_t gate = (row + i) * call.gate_stride + key_head * call.gate_step + head % layer.groups;
            const float step = softplus(to_float(static_cast<const T*>(call.a)[gate]) + call.dt_bias[head]);
            decay[i] = std::exp(call.rate[head] * step);
            weight[i] = RULE == Rule::MAMBA2 ? step : sigmoid(to_float(static_cast<const T*>(call.b)[gate]));
        }
        for (int64_t tile = 0; tile < v_dim; tile += TILE) {
            const float* s = from + tile * k_dim;
            float* next_s = to + tile * k_dim;
            for (int64_t i = 0, next; i < num_tokens; i = next, s = next_s) {
                const float *query = q.out + i * k_dim, *key = k.out + i * k_dim, *v = v_out + i * v_dim + tile;
                float* out = sums + i * v_dim + tile;
                next = i + (RULE == Rule::MAMBA2 && i + TOGETHER <= num_tokens ? TOGETHER : 1);
                if constexpr (RULE == Rule::GATED_DELTA)
                    update(s, next_s, query, key, v, k_dim, decay[i], weight[i], out);
                else if (next == i + TOGETHER)
                    accumulate<TOGETHER>(s, next_s, query, key, v, k_dim, v_dim, decay + i, weight + i, out);
                else
                    accumulate<1>(s, next_s, query, key, v, k_dim, v_dim, decay + i, weight + i, out);
            }
        }
    }

    void finish(int64_t head, int64_t row, const float* sum, const float* v) const {
        const T* z = static_cast<const T*>(call.z) + row * call.row_stride + key_head * call.z_step +
                     head % layer.groups * v_dim;
        T* out = static_cast<T*>(call.out) + (row * call.num_v_heads + head) * v_dim;
        if constexpr (RULE == Rule::MAMBA2) {
            for (int64_t at = 0; at < v_dim; at += W)
                store_exact(out + at, fused(splat(call.skip[head]), load_floats(v + at), load_floats(sum + at)) *
                                          silu_exact(load_floats(z + at)));
        } else {
            const float factor = 1 / std::sqrt(sum_of_squares(sum, v_dim) / float(v_dim) + call.eps);
            for (int64_t at = 0; at < v_dim; at += W)
                store_exact(out + at, load_floats(sum + at) * factor * load_floats(call.norm + at) *
                                          silu_exact(load_floats(z + at)));
        }
    }
};

// Computes runs of sequences that do not read each other's states; `starts` are their first runs, and the end.
template <class T, Rule RULE>
void compute(const Layer& layer, const std::vector<const Run*>& starts, int32_t num_threads) {
    const Call& call = layer.call;
    const int64_t size = 2 * layer.key_size, num_chains = int64_t(starts.size()) - 1;
    static thread_local Kept kept_keys;
    float* keys = kept_keys.of<float>(num_chains * HISTORY * size);
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_chains * HISTORY * size > PARALLEL_WORK)
    for (int64_t i = 0; i < num_chains * HISTORY; ++i) {
        const int64_t block = starts[size_t(i / HISTORY)]->source;
        if (block < 0)
            std::memset(keys + i * size, 0, size_t(size) * sizeof(float));
        else
            std::memcpy(keys + i * size, layer.state(block) + i % HISTORY * layer.channels,
                        size_t(size) * sizeof(float));
    }
    int64_t together = RULE == Rule::MAMBA2 ? MOST_HEADS : 1;  // a power of 2
    while (layer.groups % together || (together > 1 && num_chains * call.num_v_heads < 4 * num_threads * together))
        together /= 2;
    const int64_t num_units = call.num_v_heads / together;
#pragma omp parallel num_threads(num_threads) if (num_threads > 1)
    {
        static thread_local Kept kept;
        float* memory = kept.of<float>(Heads<T, RULE>::floats(call));
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < num_chains * num_units; ++i) {
            const int64_t chain = i / num_units;
            const Heads<T, RULE> heads(layer, i % num_units * together, together, memory);
            heads.compute(starts[size_t(chain)], starts[size_t(chain) + 1], keys + chain * HISTORY * size);
        }
    }
}

// Divides y by its root mean square over the heads of a key head, times the norm's weights.
template <class T>
void norm_rows(const Call& call, int64_t count, int32_t num_threads) {
    const int64_t size = call.num_v_heads / call.num_k_heads * call.v_dim;
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1)
    for (int64_t i = 0; i < count * call.num_k_heads; ++i) {
        T* y = static_cast<T*>(call.out) + i * size;
        const float* weight = call.norm + i % call.num_k_heads * size;
        const float factor = 1 / std::sqrt(sum_of_squares(y, size) / float(size) + call.eps);
        for (int64_t at = 0; at < size; at += W)
            store_exact(y + at, load_floats(y + at) * factor * load_floats(weight + at));
    }
}

template <class T, Rule RULE>
void compute_all(const Call& call) {
    const Layer layer{call};
    const int64_t count = num_rows(*call.plan);
    const bool is_large = count * call.num_v_heads * call.k_dim * call.v_dim > PARALLEL_WORK;
    const int32_t num_threads = is_large ? int32_t(call.plan->num_threads) : 1;
    each_group(*call.plan,
               [&](const std::vector<const Run*>& starts) { compute<T, RULE>(layer, starts, num_threads); });
    const bool norms_much = count * call.num_v_heads * call.v_dim > PARALLEL_WORK;
    if (RULE == Rule::MAMBA2 && call.norm) norm_rows<T>(call, count, norms_much ? num_threads : 1);
}

}  // namespace

void quire_gated_delta_float32(const Call* call) { compute_all<float, Rule::GATED_DELTA>(*call); }
void quire_gated_delta_bfloat16(const Call* call) { compute_all<BFloat16, Rule::GATED_DELTA>(*call); }
void quire_mamba2_float32(const Call* call) { compute_all<float, Rule::MAMBA2>(*call); }
void quire_mamba2_bfloat16(const Call* call) { compute_all<BFloat16, Rule::MAMBA2>(*call); }
