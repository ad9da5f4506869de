// Norms with the residual sum, rotary positions, and the best token of a row.
#include "elementwise.h"

#include <cmath>
#include <limits>

#include "floats.h"
#include "vectors.h"

namespace {

inline float rounded(float x, const float*) { return x; }
inline float rounded(float x, const BFloat16*) { return bits_as<float>(round_to_bfloat16<float, uint32_t>(x) << 16); }

// Calls body(at, lanes) for whole vectors, then for single elements; `lanes` is a Floats or float, for its type only.
template <class Body>
inline void each_vector(int64_t size, Body&& body) {
    int64_t at = 0;
    for (; at + W <= size; at += W) body(at, Floats{});
    for (; at < size; ++at) body(at, 0.0f);
}

template <class T>
inline Floats get(const T* from, Floats) { return load_floats(from); }
template <class T>
inline float get(const T* from, float) { return to_float(*from); }
template <class T>
inline void put(T* to, Floats x) { store_floats(to, x); }
template <class T>
inline void put(T* to, float x) { from_float(to, x); }

// A sum by lane.
struct Total {
    Floats lanes = Floats{};
    float rest = 0;
    void add(Floats x) { lanes += x; }
    void add(float x) { rest += x; }
    float mean(int64_t size) const { return (reduce_sum(lanes) + rest) / float(size); }
};

// Adds x, if given, to y. Calls body(y[at]) for vectors, then for single elements.
template <class T, class Body>
inline void add_and_read(const T* x, T* y, int64_t size, Body&& body) {
    if (x == nullptr) return each_vector(size, [&](int64_t at, auto lanes) { body(get(y + at, lanes)); });
    each_vector(size, [&](int64_t at, auto lanes) {
        const auto sum = rounded(get(x + at, lanes) + get(y + at, lanes), y);
        put(y + at, sum);
        body(sum);
    });
}

template <class T>
void norm(const QuireNorm& call) {
    const T* weight = static_cast<const T*>(call.weight);
    const int64_t size = call.size;
#pragma omp parallel for schedule(static) num_threads(call.num_threads) if (call.num_threads > 1)
    for (int64_t row = 0; row < call.num_rows; ++row) {
        const T* x = call.x == nullptr ? nullptr : static_cast<const T*>(call.x) + row * size;
        T* y = static_cast<T*>(call.y) + row * size;
        T* out = static_cast<T*>(call.out) + row * size;
        Total squares;
        add_and_read(x, y, size, [&](auto sum) { squares.add(sum * sum); });
        const float factor = 1.0f / std::sqrt(squares.mean(size) + call.eps);
        each_vector(size, [&](int64_t at, auto lanes) {
            put(out + at, get(y + at, lanes) * factor * (get(weight + at, lanes) + call.offset));
        });
    }
}

// The second pass corrects the mean's rounding (Chan, Golub and LeVeque 1983).
template <class T>
void layer_norm(const QuireLayerNorm& call) {
    const T *weight = static_cast<const T*>(call.weight), *bias = static_cast<const T*>(call.bias);
    const int64_t size = call.size;
#pragma omp parallel for schedule(static) num_threads(call.num_threads) if (call.num_threads > 1)
    for (int64_t row = 0; row < call.num_rows; ++row) {
        const T* x = call.x == nullptr ? nullptr : static_cast<const T*>(call.x) + row * size;
        T* y = static_cast<T*>(call.y) + row * size;
        T* out = static_cast<T*>(call.out) + row * size;
        Total total, differences, squares;
        add_and_read(x, y, size, [&](auto sum) { total.add(sum); });
        const float mean = total.mean(size);
        each_vector(size, [&](int64_t at, auto lanes) {
            const auto difference = get(y + at, lanes) - mean;
            differences.add(difference);
            squares.add(difference * difference);
        });
        const float shift = differences.mean(size);
        const float variance = std::fmax(squares.mean(size) - shift * shift, 0.0f);
        const float factor = 1.0f / std::sqrt(variance + call.eps);
        each_vector(size, [&](int64_t at, auto lanes) {
            auto normed = (get(y + at, lanes) - mean - shift) * factor;
            if (weight) normed = normed * get(weight + at, lanes);
            put(out + at, bias ? normed + get(bias + at, lanes) : normed);
        });
    }
}

template <class T>
inline float norm_factor(const T* x, int64_t size, float eps) {
    Total squares;
    each_vector(size, [&](int64_t at, auto lanes) {
        const auto value = get(x + at, lanes);
        squares.add(value * value);
    });
    return 1.0f / std::sqrt(squares.mean(size) + eps);
}

// The rest of a norm: x becomes x * factor * (weight + offset).
template <class T>
struct NormWeight {
    const T* weight;  // or null
    float offset;
    template <class Lanes>
    Lanes weigh(Lanes x, int64_t at, Lanes lanes) const {
        return weight ? x * (get(weight + at, lanes) + offset) : x;
    }
};

// The pairs of one head, of [2][half] elements.
template <class T>
inline void rotate_head(T* head, int64_t half, const T* cosines, const T* sines, NormWeight<T> norm, float factor) {
    each_vector(half, [&](int64_t at, auto lanes) {
        auto left = get(head + at, lanes), right = get(head + half + at, lanes);
        if (norm.weight) {
            left = rounded(norm.weigh(left * factor, at, lanes), head);
            right = rounded(norm.weigh(right * factor, half + at, lanes), head);
        }
        put(head + at, rounded(left * get(cosines + at, lanes), head) + right * get(sines + at, lanes));
        put(head + half + at,
            rounded(right * get(cosines + half + at, lanes), head) + left * get(sines + half + at, lanes));
    });
}

// As `rotate_head` for [half][2] elements without a norm.
template <class T>
inline void rotate_interleaved(T* head, int64_t half, const T* cosines, const T* sines) {
    for (int64_t i = 0; i < half; ++i) {
        const float left = to_float(head[2 * i]), right = to_float(head[2 * i + 1]);
        put(head + 2 * i, rounded(left * to_float(cosines[i]), head) + right * to_float(sines[i]));
        put(head + 2 * i + 1,
            rounded(right * to_float(cosines[half + i]), head) + left * to_float(sines[half + i]));
    }
}

template <class T>
inline void scale_head(T* head, int64_t from, int64_t to, NormWeight<T> norm, float factor) {
    each_vector(to - from, [&](int64_t at, auto lanes) {
        put(head + from + at, norm.weigh(get(head + from + at, lanes) * factor, from + at, lanes));
    });
}

// The query heads or the key heads of a token.
template <class T>
void rotate_heads(const QuireRotate& call, T* heads, int64_t num_heads, int64_t step, const void* weight,
                  const T* cosines, const T* sines) {
    const int64_t dim = call.head_dim, rotated = call.rotary_dim;
    NormWeight<T> norm{static_cast<const T*>(weight), call.offset};
    float factor = weight && call.norms_all_heads ? norm_factor(heads, num_heads * dim, call.eps) : 1;
    for (T* head = heads; head < heads + num_heads * step * dim; head += step * dim) {
        if (weight && !call.norms_all_heads) factor = norm_factor(head, dim, call.eps);
        if (call.is_interleaved) {
            if (weight) scale_head(head, 0, rotated, norm, factor);
            rotate_interleaved(head, rotated / 2, cosines, sines);
        } else {
            rotate_head(head, rotated / 2, cosines, sines, norm, factor);
        }
        if (weight) scale_head(head, rotated, dim, norm, factor);
        if (weight && call.norms_all_heads) norm.weight += dim;
    }
}

template <class T>
void rotate(const QuireRotate& call) {
    const int64_t step = call.query_step ? call.query_step : 1, queries = call.num_query_heads * step * call.head_dim;
#pragma omp parallel for schedule(static) num_threads(call.num_threads) if (call.num_threads > 1)
    for (int64_t token = 0; token < call.num_tokens; ++token) {
        T* heads = static_cast<T*>(call.heads) + token * call.stride;
        const T* cosines = static_cast<const T*>(call.cosines) + token * call.rotary_dim;
        const T* sines = static_cast<const T*>(call.sines) + token * call.rotary_dim;
        rotate_heads(call, heads, call.num_query_heads, step, call.query_weight, cosines, sines);
        rotate_heads(call, heads + queries, call.num_key_heads, 1, call.key_weight, cosines, sines);
        const T* scale = static_cast<const T*>(call.query_scale);
        if (scale) scale_head<T>(heads, 0, queries, {}, to_float(scale[token]));
    }
}

template <class T>
void latents(const QuireLatents& call) {
    const int64_t rotated = call.rotary_dim, key_dim = call.latent_dim + rotated;
#pragma omp parallel for schedule(static) num_threads(call.num_threads) if (call.num_threads > 1)
    for (int64_t token = 0; token < call.num_tokens; ++token) {
        const T* cosines = static_cast<const T*>(call.cosines) + token * rotated;
        const T* sines = static_cast<const T*>(call.sines) + token * rotated;
        const auto rotate = [&](T* x) {
            if (call.is_interleaved) return rotate_interleaved(x, rotated / 2, cosines, sines);
            rotate_head<T>(x, rotated / 2, cosines, sines, {}, 1);
        };
        T* key = static_cast<T*>(call.keys) + token * key_dim;
        const float factor = norm_factor(key, call.latent_dim, call.eps);
        scale_head<T>(key, 0, call.latent_dim, {static_cast<const T*>(call.weight), 0}, factor);
        rotate(key + call.latent_dim);
        T* end = static_cast<T*>(call.queries) + token * call.num_heads * call.query_dim;
        for (int64_t head = 0; head < call.num_heads; ++head) rotate((end += call.query_dim) - rotated);
    }
}

template <class T>
void norm_heads(const QuireNormHeads& call) {
    const int64_t dim = call.head_dim;
#pragma omp parallel for schedule(static) num_threads(call.num_threads) if (call.num_threads > 1)
    for (int64_t i = 0; i < call.num_tokens * call.num_heads; ++i) {
        const T* x = static_cast<const T*>(call.x) + i / call.num_heads * call.stride + i % call.num_heads * dim;
        T* out = static_cast<T*>(call.out) + i * dim;
        const float factor = norm_factor(x, dim, call.eps);
        each_vector(dim, [&](int64_t at, auto lanes) { put(out + at, get(x + at, lanes) * factor); });
    }
}

constexpr int64_t BLOCK = 64 * W;  // tokens: finds the best block by its maximum, then the index within it

template <class T>
void best(const void* rows, int64_t num_rows, int64_t size, int64_t stride, float* values, int64_t* places,
          int32_t num_threads) {
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1)
    for (int64_t i = 0; i < num_rows; ++i) {
        const T* row = static_cast<const T*>(rows) + i * stride;
        float highest = -std::numeric_limits<float>::infinity();
        int64_t first = 0;
        Ints not_numbers = Ints{};
        bool is_number = true;
        for (int64_t block = 0; block < size; block += BLOCK) {
            const int64_t end = block + BLOCK < size ? block + BLOCK : size;
            Floats maxima = splat(-std::numeric_limits<float>::infinity());
            int64_t at = block;
            for (; at + W <= end; at += W) {
                const Floats x = load_floats(row + at);
                not_numbers |= x != x;
                maxima = max(x, maxima);
            }
            float maximum = reduce_max(maxima);
            for (; at < end; ++at) {
                const float x = to_float(row[at]);
                is_number &= x == x;
                maximum = x > maximum ? x : maximum;
            }
            if (maximum > highest) {
                highest = maximum;
                first = block;
            }
        }
        for (int lane = 0; lane < W; ++lane) is_number &= not_numbers[lane] == 0;
        int64_t place = 0;
        if (is_number)
            for (place = first; place + 1 < size && to_float(row[place]) != highest;) ++place;
        values[i] = is_number ? highest : std::numeric_limits<float>::quiet_NaN();
        places[i] = place;
    }
}

}  // namespace

void quire_norm_float32(const QuireNorm* call) { norm<float>(*call); }
void quire_norm_bfloat16(const QuireNorm* call) { norm<BFloat16>(*call); }
void quire_norm_heads_float32(const QuireNormHeads* call) { norm_heads<float>(*call); }
void quire_norm_heads_bfloat16(const QuireNormHeads* call) { norm_heads<BFloat16>(*call); }
void quire_layer_norm_float32(const QuireLayerNorm* call) { layer_norm<float>(*call); }
void quire_layer_norm_bfloat16(const QuireLayerNorm* call) { layer_norm<BFloat16>(*call); }
void quire_rotate_float32(const QuireRotate* call) { rotate<float>(*call); }
void quire_rotate_bfloat16(const QuireRotate* call) { rotate<BFloat16>(*call); }
void quire_latents_float32(const QuireLatents* call) { latents<float>(*call); }
void quire_latents_bfloat16(const QuireLatents* call) { latents<BFloat16>(*call); }
void quire_best_float32(const void* rows, int64_t num_rows, int64_t size, int64_t stride, float* values,
                        int64_t* places, int32_t num_threads) {
    best<float>(rows, num_rows, size, stride, values, places, num_threads);
}
void quire_best_bfloat16(const void* rows, int64_t num_rows, int64_t size, int64_t stride, float* values,
                         int64_t* places, int32_t num_threads) {
    best<BFloat16>(rows, num_rows, size, stride, values, places, num_threads);
}
