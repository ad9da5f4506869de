// The gated delta rule, token by token. Threads have sequences and value heads of their own; a head's S is processed by
// tiles of columns, which stay in the L1 cache for a chunk of tokens.
#include "gated_delta.h"

#include <cmath>

#include "activations.h"
#include "kept.h"
#include "recurrent.h"

namespace {

constexpr int64_t HISTORY = 3;  // inputs of the convolution before a token's own
constexpr int64_t TILE = 32;    // columns

// One token in one tile. Never inlined, so that all tokens have the same instructions.
__attribute__((noinline)) void update(const float* from, float* to, const float* q, const float* k, const float* v,
                                      int64_t k_dim, float decay, float beta, float* out) {
    constexpr int width = TILE / W;
    Floats even[width] = {}, odd[width] = {}, delta[width], sums[width] = {};
    for (int64_t i = 0; i < k_dim; i += 2) {
        const float* row = from + i * width * W;
        for (int w = 0; w < width; ++w) even[w] = fused(splat(k[i]), load_floats(row + w * W), even[w]);
        for (int w = 0; w < width; ++w) odd[w] = fused(splat(k[i + 1]), load_floats(row + (width + w) * W), odd[w]);
    }
    for (int w = 0; w < width; ++w)
        delta[w] = (load_floats(v + w * W) - (even[w] + odd[w]) * decay) * beta;
    for (int64_t i = 0; i < k_dim; ++i)
        for (int w = 0; w < width; ++w) {
            const int64_t at = (i * width + w) * W;
            const Floats s = fused(splat(k[i]), delta[w], load_floats(from + at) * decay);
            store_floats(to + at, s);
            sums[w] = fused(splat(q[i]), s, sums[w]);
        }
    for (int w = 0; w < width; ++w) store_floats(out + w * W, sums[w]);
}

inline float sum_of_squares(const float* x, int64_t size) {
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
    const QuireGatedDelta& call;
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
    const QuireGatedDelta& call;
    const T* x;  // inputs of row 0
    float* out;  // [CHUNK][size]

    static int64_t floats(int64_t size) { return (HISTORY + 2 * CHUNK) * size; }

    // Convolves the next rows.
    void next(int64_t row, int64_t count) const {
        Window::next(
            count, call.conv,
            [&](int64_t i, int64_t at) { return load_floats(x + (row + i) * call.row_stride + at); },
            [&](int64_t i, int64_t at, Floats sum) { store_floats(out + i * size + at, silu_exact(sum)); });
    }
};

// A value head of one sequence.
template <class T>
struct Head {
    const Layer& layer;
    const int64_t head, k_dim = layer.call.k_dim, v_dim = layer.call.v_dim, key_head = head / layer.groups,
                        of_group = head % layer.groups;
    Channels<T> q, k, v;
    float* sums;  // [CHUNK][v_dim]

    static int64_t floats(const QuireGatedDelta& call) {
        return 2 * Channels<T>::floats(call.k_dim) + Channels<T>::floats(call.v_dim) + CHUNK * call.v_dim;
    }

    Head(const Layer& layer, int64_t head, float* memory)
        : layer(layer), head(head),
          q(of(layer.call.q, key_head * layer.call.key_step, key_head * k_dim, k_dim, memory)),
          k(of(layer.call.k, key_head * layer.call.key_step, layer.key_size + key_head * k_dim, k_dim, memory)),
          v(of(layer.call.v, key_head * layer.call.value_step + of_group * v_dim, 2 * layer.key_size + head * v_dim,
               v_dim, memory)),
          sums(memory) {}

    Channels<T> of(const void* x, int64_t at, int64_t first, int64_t size, float*& memory) const {
        float* inputs = memory;
        memory += Channels<T>::floats(size);
        return {{first, size, layer.channels, inputs}, layer.call, static_cast<const T*>(x) + at,
                inputs + (HISTORY + CHUNK) * size};
    }

    // `keys`: the last inputs of all queries and keys before the first run, [HISTORY][2 * key_size].
    void compute(const Run* begin, const Run* end, const float* keys) {
        q.begin(keys + q.first, 2 * layer.key_size);
        k.begin(keys + k.first, 2 * layer.key_size);
        v.begin(begin->source < 0 ? nullptr : layer.state(begin->source) + v.first, layer.channels);
        for (const Run* run = begin; run < end; ++run) {
            float* to = layer.matrix(run->target, head);
            const float* from = to;
            if (run->source < 0)
                std::memset(to, 0, size_t(k_dim * v_dim) * sizeof(float));
            else
                from = layer.matrix(run->source, head);
            for (int64_t row = run->first; row < run->end; row += CHUNK, from = to)
                chunk(row, std::min(CHUNK, run->end - row), from, to);
            v.save(layer.state(run->target));
            if (of_group == 0) {
                q.save(layer.state(run->target));
                k.save(layer.state(run->target));
            }
        }
    }

    void chunk(int64_t row, int64_t count, const float* from, float* to) {
        const QuireGatedDelta& call = layer.call;
        float decay[CHUNK], beta[CHUNK];
        q.next(row, count);
        k.next(row, count);
        v.next(row, count);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t gate = (row + i) * call.gate_stride + key_head * call.gate_step + of_group;
            const float a = to_float(static_cast<const T*>(call.a)[gate]);
            beta[i] = sigmoid(to_float(static_cast<const T*>(call.b)[gate]));
            decay[i] = std::exp(call.rate[head] * softplus(a + call.dt_bias[head]));
            float *query = q.out + i * k_dim, *key = k.out + i * k_dim;
            scale(key, k_dim, 1 / std::sqrt(sum_of_squares(key, k_dim) + 1e-6f));
            scale(query, k_dim, 1 / std::sqrt((sum_of_squares(query, k_dim) + 1e-6f) * float(k_dim)));
        }
        for (int64_t first = 0; first < v_dim; first += TILE)
            for (int64_t i = 0; i < count; ++i)
                update((i ? to : from) + first * k_dim, to + first * k_dim, q.out + i * k_dim, k.out + i * k_dim,
                    v.out + i * v_dim + first, k_dim, decay[i], beta[i], sums + i * v_dim + first);
        for (int64_t i = 0; i < count; ++i) finish(row + i, sums + i * v_dim);
    }

    void finish(int64_t row, const float* sum) const {
        const QuireGatedDelta& call = layer.call;
        const T* z = static_cast<const T*>(call.z) + row * call.row_stride + key_head * call.z_step + of_group * v_dim;
        T* out = static_cast<T*>(call.out) + (row * call.num_v_heads + head) * v_dim;
        const float factor = 1 / std::sqrt(sum_of_squares(sum, v_dim) / float(v_dim) + call.eps);
        for (int64_t at = 0; at < v_dim; at += W)
            store_exact(out + at, load_floats(sum + at) * factor * load_floats(call.norm + at) *
                                      silu_exact(load_floats(z + at)));
    }
};

// Computes runs of sequences that do not read each other's states; `starts` are their first runs, and the end.
template <class T>
void compute(const Layer& layer, const std::vector<const Run*>& starts, int32_t num_threads) {
    const QuireGatedDelta& call = layer.call;
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
#pragma omp parallel num_threads(num_threads) if (num_threads > 1)
    {
        static thread_local Kept kept;
        float* memory = kept.of<float>(Head<T>::floats(call));
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < num_chains * call.num_v_heads; ++i) {
            const int64_t chain = i / call.num_v_heads;
            Head<T>(layer, i % call.num_v_heads, memory)
                .compute(starts[size_t(chain)], starts[size_t(chain) + 1], keys + chain * HISTORY * size);
        }
    }
}

template <class T>
void compute_all(const QuireGatedDelta& call) {
    const Layer layer{call};
    const bool is_large = num_rows(*call.plan) * call.num_v_heads * call.k_dim * call.v_dim > PARALLEL_WORK;
    const int32_t num_threads = is_large ? int32_t(call.plan->num_threads) : 1;
    each_group(*call.plan, [&](const std::vector<const Run*>& starts) { compute<T>(layer, starts, num_threads); });
}

}  // namespace

void quire_gated_delta_float32(const QuireGatedDelta* call) { compute_all<float>(*call); }
void quire_gated_delta_bfloat16(const QuireGatedDelta* call) { compute_all<BFloat16>(*call); }
