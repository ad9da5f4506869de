// The gated delta rule, token by token. Threads have sequences and value heads of their own; a head's S is processed by
// tiles of columns, which stay in the L1 cache for a chunk of tokens.
#include "gated_delta.h"

#include <cmath>
#include <vector>

#include "activations.h"
#include "floats.h"
#include "kept.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

constexpr int64_t HISTORY = 3;  // inputs of the convolution before a token's own
constexpr int64_t TILE = 32;    // columns
constexpr int64_t CHUNK = 16;   // tokens
constexpr int64_t PARALLEL_WORK = 1 << 16;  // elements of S, below which waking other threads does not pay

// a * b + c, rounded once where the level can.
inline Floats fused(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return bits_as<Floats>(_mm512_fmadd_ps(bits_as<__m512>(a), bits_as<__m512>(b), bits_as<__m512>(c)));
#elif defined(__AVX2__)
    return bits_as<Floats>(_mm256_fmadd_ps(bits_as<__m256>(a), bits_as<__m256>(b), bits_as<__m256>(c)));
#elif defined(__aarch64__)
    return bits_as<Floats>(vfmaq_f32(bits_as<float32x4_t>(c), bits_as<float32x4_t>(a), bits_as<float32x4_t>(b)));
#else
    return a * b + c;
#endif
}

struct Run {
    int64_t first, end, source, target;
};

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

template <class T>
struct Layer {
    const QuireGatedDelta& call;
    const int64_t groups = call.num_v_heads / call.num_k_heads, key_size = call.num_k_heads * call.k_dim,
                  channels = 2 * key_size + call.num_v_heads * call.v_dim;
    const Run* runs = reinterpret_cast<const Run*>(call.plan->runs);

    float* state(int64_t block) const {
        return reinterpret_cast<float*>(reinterpret_cast<char*>(call.states) + block * call.plan->block_stride);
    }
    float* matrix(int64_t block, int64_t head) const {
        return state(block) + HISTORY * channels + head * call.k_dim * call.v_dim;
    }
};

// Convolved channels of one head: a window over their inputs, and outputs of a chunk.
template <class T>
struct Channels {
    const Layer<T>& layer;
    const T* x;      // inputs of row 0
    int64_t first, size;  // channels
    float *inputs, *out;  // [HISTORY + CHUNK][size] and [CHUNK][size]

    static int64_t floats(int64_t size) { return (HISTORY + 2 * CHUNK) * size; }

    // Begins with the last inputs before a sequence's first row, whose rows are `stride` apart, or zeros.
    void begin(const float* history, int64_t stride) {
        for (int64_t i = 0; i < HISTORY; ++i) {
            if (history)
                std::memcpy(inputs + i * size, history + i * stride, size_t(size) * sizeof(float));
            else
                std::memset(inputs + i * size, 0, size_t(size) * sizeof(float));
        }
    }

    // Convolves the next rows.
    void next(int64_t row, int64_t count) {
        const QuireGatedDelta& call = layer.call;
        const float* weight = call.conv + first;
        for (int64_t i = 0; i < count; ++i)
            for (int64_t at = 0; at < size; at += W) {
                const Floats given = load_floats(x + (row + i) * call.row_stride + at);
                float* own = inputs + (HISTORY + i) * size + at;
                store_floats(own, given);
                Floats sum = given * load_floats(weight + HISTORY * layer.channels + at);
                for (int64_t tap = 0; tap < HISTORY; ++tap)
                    sum = fused(load_floats(own + (tap - HISTORY) * size),
                                load_floats(weight + tap * layer.channels + at), sum);
                store_floats(out + i * size + at, silu_exact(sum));
            }
        std::memmove(inputs, inputs + count * size, size_t(HISTORY * size) * sizeof(float));
    }

    // Writes the last inputs to a state.
    void save(float* state) const {
        for (int64_t i = 0; i < HISTORY; ++i)
            std::memcpy(state + i * layer.channels + first, inputs + i * size, size_t(size) * sizeof(float));
    }
};

// A value head of one sequence.
template <class T>
struct Head {
    const Layer<T>& layer;
    const int64_t head, k_dim = layer.call.k_dim, v_dim = layer.call.v_dim, key_head = head / layer.groups,
                        of_group = head % layer.groups;
    Channels<T> q, k, v;
    float* sums;  // [CHUNK][v_dim]

    static int64_t floats(const QuireGatedDelta& call) {
        return 2 * Channels<T>::floats(call.k_dim) + Channels<T>::floats(call.v_dim) + CHUNK * call.v_dim;
    }

    Head(const Layer<T>& layer, int64_t head, float* memory)
        : layer(layer), head(head),
          q(of(layer.call.q, key_head * layer.call.key_step, key_head * k_dim, k_dim, memory)),
          k(of(layer.call.k, key_head * layer.call.key_step, layer.key_size + key_head * k_dim, k_dim, memory)),
          v(of(layer.call.v, key_head * layer.call.value_step + of_group * v_dim, 2 * layer.key_size + head * v_dim,
               v_dim, memory)),
          sums(memory) {}

    Channels<T> of(const void* x, int64_t at, int64_t first, int64_t size, float*& memory) const {
        float* inputs = memory;
        memory += Channels<T>::floats(size);
        return {layer, static_cast<const T*>(x) + at, first, size, inputs, inputs + (HISTORY + CHUNK) * size};
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
                chunk(row, run->end - row < CHUNK ? run->end - row : CHUNK, from, to);
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

// Whether a run of another sequence reads or writes what these do.
inline bool conflicts(const Run* begin, const Run* end, const Run& run) {
    for (; begin < end; ++begin)
        if (begin->target == run.source || begin->target == run.target || begin->source == run.target) return true;
    return false;
}

// Computes runs of sequences that do not read each other's states; `starts` are their first runs, and the end.
template <class T>
void compute(const Layer<T>& layer, const std::vector<const Run*>& starts, int32_t num_threads) {
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
    const Layer<T> layer{call};
    const Run *end = layer.runs + call.plan->num_runs, *first = layer.runs;
    int64_t num_rows = 0;
    for (const Run* run = first; run < end; ++run) num_rows += run->end - run->first;
    const bool is_large = num_rows * call.num_v_heads * call.k_dim * call.v_dim > PARALLEL_WORK;
    std::vector<const Run*> starts;
    const Run* chain = first;  // of one sequence
    for (const Run* run = first; run <= end; ++run) {
        const bool continues = run > first && run < end && run->source == run[-1].target && run->first == run[-1].end;
        if (!continues) chain = run;
        if (run > first && (run == end || conflicts(first, chain, *run))) {
            starts.push_back(run);
            compute(layer, starts, is_large ? int32_t(call.plan->num_threads) : 1);
            starts.clear();
            first = chain = run;
        }
        if (run == chain) starts.push_back(run);
    }
}

}  // namespace

void quire_gated_delta_float32(const QuireGatedDelta* call) { compute_all<float>(*call); }
void quire_gated_delta_bfloat16(const QuireGatedDelta* call) { compute_all<BFloat16>(*call); }
