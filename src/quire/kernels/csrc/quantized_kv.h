// Rows of a KV cache in 8 bits: a key or value of one token and head is its scale, a float32 number, then an integer for
// each number, which is the integer times the scale. The largest magnitude of a row becomes 127.
//
// Each row has a scale of its own, so its bits depend on no other token: neither on the chunks of a prompt, nor on when a
// block fills.
#pragma once

#include "tile.h"

namespace {

struct Quantized {
    int8_t byte;
};
constexpr int64_t SCALE_BYTES = sizeof(float);

// Numbers that a word holds of a cache's rows: whole ones, where products take float32.
template <class T, class Stored>
constexpr int EACH_OF = EACH<T>;
template <class T>
constexpr int EACH_OF<T, Quantized> = HAS_PAIRS ? EACH<T> : 1;

template <class T>
inline void store_row(const T* from, int64_t dim, T* to) {
    std::memcpy(to, from, size_t(dim) * sizeof(T));
}

// NaN or infinity makes the scale NaN.
template <class T>
inline void store_row(const T* from, int64_t dim, Quantized* to) {
    const auto numbers = [=](int64_t at) {
        if (at + W <= dim) return load_floats(from + at);
        T rest[W] = {};
        std::memcpy(rest, from + at, size_t(dim - at) * sizeof(T));
        return load_floats(rest);
    };
    Floats highest{}, poison{};
    for (int64_t at = 0; at < dim; at += W) {
        highest = max(absolute(numbers(at)), highest);
        poison += numbers(at) * 0.0f;
    }
    const float maximum = reduce_max(highest), factor = maximum > 1e-30f ? 127.0f / maximum : 0.0f;
    const float scale = (maximum > 1e-30f ? maximum / 127.0f : 0.0f) + reduce_sum(poison);
    std::memcpy(to, &scale, sizeof scale);
    int8_t* integers = &to->byte + SCALE_BYTES;
    for (int64_t at = 0; at < dim; at += W) {
        int8_t bytes[W];
        store_bytes(bytes, round_to_ints(numbers(at) * factor));
        std::memcpy(integers + at, bytes, size_t(at + W <= dim ? W : dim - at));
    }
}

inline float scale_of(const Quantized* row) { return load<float>(row); }
inline float number(const Quantized* row, int64_t at) { return float(row[SCALE_BYTES + at].byte) * scale_of(row); }

// A word of `each` numbers, for one lane or all.
template <int each, class Word, class Float>
inline Word word_of(const Float* numbers) {
    if constexpr (each == 1) return bits_as<Word>(numbers[0]);
    return round_to_bfloat16<Float, Word>(numbers[0]) | round_to_bfloat16<Float, Word>(numbers[1]) << 16;
}

// See `pack_keys` in tile.h. A word of four integers is transposed at once.
template <int each>
inline void pack_keys(const TileRows<Quantized>& rows, int64_t columns, int64_t head_dim, uint32_t* to, Ahead& ahead) {
    for (int64_t token = 0; token < columns; token += W, to += W) {
        float scale_of_lane[W];
        for (int i = 0; i < W; ++i) scale_of_lane[i] = scale_of(rows.keys[token + i]);
        const Floats scales = load<Floats>(scale_of_lane);
        int64_t dim = 0;
        for (; dim + 4 * W <= head_dim; dim += 4 * W) {
            ahead(8);
            Words lanes[W];
#pragma GCC unroll 16
            for (int i = 0; i < W; ++i) lanes[i] = load<Words>(rows.keys[token + i] + SCALE_BYTES + dim);
            transpose(lanes);
#pragma GCC unroll 16
            for (int i = 0; i < W; ++i) {
                Floats numbers[4];
#pragma GCC unroll 4
                for (int j = 0; j < 4; ++j)
                    numbers[j] = __builtin_convertvector(bits_as<Ints>(lanes[i] << (24 - 8 * j)) >> 24, Floats) * scales;
#pragma GCC unroll 4
                for (int j = 0; j < 4; j += each)
                    store(to + (dim + 4 * i + j) / each * TILE, word_of<each, Words>(numbers + j));
            }
        }
        for (; dim < head_dim; dim += each)
            for (int i = 0; i < W; ++i) {
                const Quantized* row = rows.keys[token + i];
                const float numbers[2] = {number(row, dim), dim + 1 < head_dim ? number(row, dim + 1) : 0.0f};
                to[dim / each * TILE + i] = word_of<each, uint32_t>(numbers);
            }
    }
}

template <int each>
inline void join(const Quantized* const* from, int64_t head_dim, uint32_t* to) {
    int64_t dim = 0;
    for (; dim + W <= head_dim; dim += W) {
        Floats numbers[each];
        for (int i = 0; i < each; ++i)
            numbers[i] = __builtin_convertvector(load_ints(&from[i][SCALE_BYTES + dim].byte), Floats) * scale_of(from[i]);
        store(to + dim, word_of<each, Words>(numbers));
    }
    for (; dim < head_dim; ++dim) {
        float numbers[each];
        for (int i = 0; i < each; ++i) numbers[i] = number(from[i], dim);
        to[dim] = word_of<each, uint32_t>(numbers);
    }
}

}  // namespace
