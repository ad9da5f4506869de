// A tile of keys and values, copied from the KV cache's blocks into dense memory: keys transposed, and bfloat16 numbers
// paired in words or widened.
//
// So both products of attention read whole vectors, with any block size, head size and dtype. The tile stays in the L1
// cache for all queries of a group or chunk.
#pragma once

#include "product.h"
#include "sizes.h"

namespace {

constexpr int TILE = W == 16 ? 128 : 64;  // tokens; whole panels

// Addresses of a tile's keys and values. Those past its end point to zeros: another sequence's data is never read.
template <class T>
struct TileRows {
    const T* keys[TILE];
    const T* values[TILE];
    int64_t count = 0;

    // first_key, first_value: this head's in the first block.
    void find(const T* first_key, const T* first_value, const int32_t* table, int64_t block_stride, int64_t block_size,
              int64_t key_stride, int64_t value_stride, int64_t first, int64_t end, const T* zeros) {
        count = end - first < TILE ? end - first : TILE;
        int64_t block = first / block_size, offset = first % block_size;
        for (int64_t token = 0; token < count; ++block, offset = 0) {
            const int64_t start = table[block] * block_stride;
            const T *key = first_key + start + offset * key_stride, *value = first_value + start + offset * value_stride;
            for (; offset < block_size && token < count; ++offset, ++token, key += key_stride, value += value_stride) {
                keys[token] = key;
                values[token] = value;
            }
        }
        for (int64_t token = count < 0 ? 0 : count; token < TILE; ++token) keys[token] = values[token] = zeros;
    }
};

// Prefetches the next tile, a few lines at a time: blocks are scattered, so the hardware cannot predict them.
class Ahead {
  public:
    template <class T>
    Ahead(const TileRows<T>& rows, int64_t head_dim, int64_t value_dim)
        : rows_{reinterpret_cast<const char* const*>(rows.keys), reinterpret_cast<const char* const*>(rows.values)},
          count_(rows.count),
          row_bytes_{head_dim * int64_t(sizeof(T)), value_dim * int64_t(sizeof(T))},
          part_(count_ > 0 ? 0 : 2) {}

    void operator()() {
        if (part_ == 2) return;
        __builtin_prefetch(rows_[part_][token_] + at_);
        if ((at_ += 64) < row_bytes_[part_]) return;
        at_ = 0;
        if (++token_ < count_) return;
        token_ = 0;
        part_ = part_ == 0 && row_bytes_[1] > 0 ? 1 : 2;
    }
    void operator()(int lines) {
        for (int i = 0; i < lines; ++i) (*this)();
    }

  private:
    const char* const* rows_[2];  // keys, then values
    int64_t count_, row_bytes_[2], at_ = 0, token_ = 0;
    int part_;
};

template <int each>
inline uint32_t to_word(const float* from, int64_t) {
    return bits_as<uint32_t>(*from);
}
template <int each>
inline uint32_t to_word(const BFloat16* from, int64_t count) {
    if (each == 1) return uint32_t(from->bits) << 16;
    return from[0].bits | (count > 1 ? uint32_t(from[1].bits) << 16 : 0);
}

// W words from consecutive numbers.
template <int each>
inline Words to_words(const float* from) {
    return load<Words>(from);
}
template <int each>
inline Words to_words(const BFloat16* from) {
    return each == 1 ? load_words(from) << 16 : load<Words>(from);
}

// Fills to[words][columns] of to[words][TILE]; columns are whole panels.
template <int each, class T>
inline void pack_keys(const TileRows<T>& rows, int64_t columns, int64_t head_dim, uint32_t* to, Ahead& ahead) {
    const int64_t words = divide_up(head_dim, each);
    for (int64_t token = 0; token < columns; token += W) {
        int64_t word = 0;
        for (; word + W <= head_dim / each; word += W) {
            ahead(4);
            Words lanes[W];
#pragma GCC unroll 16
            for (int i = 0; i < W; ++i) lanes[i] = to_words<each>(rows.keys[token + i] + word * each);
            transpose(lanes);
#pragma GCC unroll 16
            for (int i = 0; i < W; ++i) store(to + (word + i) * TILE + token, lanes[i]);
        }
        for (; word < words; ++word)
            for (int i = 0; i < W; ++i)
                to[word * TILE + token + i] = to_word<each>(rows.keys[token + i] + word * each, head_dim - word * each);
    }
}

// Makes a row of words from `each` rows of values.
template <int each>
inline void join(const float* const* from, int64_t head_dim, uint32_t* to) {
    std::memcpy(to, from[0], size_t(head_dim) * sizeof(float));
}
template <int each>
inline void join(const BFloat16* const* from, int64_t head_dim, uint32_t* to) {
    int64_t dim = 0;
    for (; dim + W <= head_dim; dim += W)
        store(to + dim, each == 1 ? load_words(from[0] + dim) << 16
                                  : load_words(from[0] + dim) | load_words(from[1] + dim) << 16);
    for (; dim < head_dim; ++dim)
        to[dim] = each == 1 ? uint32_t(from[0][dim].bits) << 16 : from[0][dim].bits | uint32_t(from[1][dim].bits) << 16;
}

// to[count / each][width]; count: a multiple of `depth` that is at least the tile's.
template <int each, class T>
inline void pack_values(const TileRows<T>& rows, int64_t head_dim, int64_t width, int64_t depth, uint32_t* to,
                        Ahead& ahead) {
    const int64_t count = round_up(rows.count, depth);
    for (int64_t token = 0; token < count; token += each, to += width) {
        ahead(1);
        join<each>(rows.values + token, head_dim, to);
    }
}

// to[width] = from[head_dim], zero-padded, as the left side of a product.
inline void take_query(const BFloat16* from, int64_t head_dim, int64_t width, BFloat16* to) {
    std::memcpy(to, from, size_t(head_dim) * sizeof(BFloat16));
    std::memset(to + head_dim, 0, size_t(width - head_dim) * sizeof(BFloat16));
}
template <class T>
inline void take_query(const T* from, int64_t head_dim, int64_t width, float* to) {
    int64_t dim = 0;
    for (; dim + W <= head_dim; dim += W) store(to + dim, load_floats(from + dim));
    for (; dim < head_dim; ++dim) to[dim] = to_float(from[dim]);
    for (; dim < width; ++dim) to[dim] = 0;
}

// to[head_dim] = from * factor, in the cache's dtype.
template <class T>
inline void narrow(const float* from, int64_t head_dim, float factor, T* to) {
    int64_t dim = 0;
    for (; dim + W <= head_dim; dim += W) store_floats(to + dim, load_floats(from + dim) * factor);
    for (; dim < head_dim; ++dim) from_float(to + dim, from[dim] * factor);
}

}  // namespace
