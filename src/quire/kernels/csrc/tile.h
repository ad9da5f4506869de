// A tile of keys and values, brought from the cache's blocks into one dense piece of floats: keys transposed.
//
// Both products of attention then read whole vectors, whatever the block size, the head's width and the dtype. The
// piece stays in the first cache, and all queries of a group, or of a chunk, use it.
#pragma once

#include "product.h"

namespace {

constexpr int TILE = 32;  // tokens; a multiple of PANEL

inline int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// Where a tile's keys and values lie. Those past the tile's end are zeros: what a former owner left is never read.
template <class T>
struct TileRows {
    const T* keys[TILE];
    const T* values[TILE];
    int64_t count = 0;

    // layer: where the first block's part begins, of K in this head. to_values: from a key to its value.
    void find(const T* layer, const int32_t* table, int64_t block_stride, int64_t block_size, int64_t head_dim,
              int64_t to_values, int64_t first, int64_t end, const T* zeros) {
        count = end - first < TILE ? end - first : TILE;
        int64_t block = first / block_size, offset = first % block_size;
        for (int64_t token = 0; token < count; ++block, offset = 0) {
            const T* key = layer + table[block] * block_stride + offset * head_dim;
            for (; offset < block_size && token < count; ++offset, ++token, key += head_dim) {
                keys[token] = key;
                values[token] = key + to_values;
            }
        }
        for (int64_t token = count < 0 ? 0 : count; token < TILE; ++token) keys[token] = values[token] = zeros;
    }
};

// Asks for the lines of a tile that is needed next, one a call: blocks lie anywhere, so no hardware foresees them.
class Ahead {
  public:
    template <class T>
    Ahead(const TileRows<T>& rows, int64_t head_dim)
        : rows_{reinterpret_cast<const char* const*>(rows.keys), reinterpret_cast<const char* const*>(rows.values)},
          count_(rows.count),
          row_bytes_(head_dim * int64_t(sizeof(T))),
          part_(count_ > 0 ? 0 : 2) {}

    void operator()() {
        if (part_ == 2) return;
        __builtin_prefetch(rows_[part_][token_] + at_);
        if ((at_ += 64) < row_bytes_) return;
        at_ = 0;
        if (++token_ < count_) return;
        token_ = 0;
        ++part_;
    }

  private:
    const char* const* rows_[2];  // keys, then values
    int64_t count_, row_bytes_, at_ = 0, token_ = 0;
    int part_;
};

// Several vectors of a row in one: for float32 one, for bfloat16 two, in pairs.
inline void store_transposed(const float*, Words lanes, float* to, int64_t) { store(to, lanes); }
inline void store_transposed(const BFloat16*, Words lanes, float* to, int64_t stride) {
    store(to, lanes << 16);
    store(to + stride, lanes & 0xffff0000u);
}

// to[head_dim][TILE]
template <class T>
inline void pack_keys(const TileRows<T>& rows, int64_t head_dim, float* to) {
    constexpr int each = 4 / sizeof(T);  // dimensions in a word
    for (int64_t token = 0; token < TILE; token += W) {
        int64_t dim = 0;
        for (; dim + W * each <= head_dim; dim += W * each) {
            Words lanes[W];
            for (int i = 0; i < W; ++i) lanes[i] = load<Words>(rows.keys[token + i] + dim);
            transpose(lanes);
            for (int i = 0; i < W; ++i)
                store_transposed(rows.keys[0], lanes[i], to + (dim + i * each) * TILE + token, TILE);
        }
        for (; dim < head_dim; ++dim)
            for (int i = 0; i < W; ++i) to[dim * TILE + token + i] = to_float(rows.keys[token + i][dim]);
    }
}

// to[width] = from[head_dim] * factor, zeros after them.
template <class T>
inline void widen(const T* from, int64_t head_dim, int64_t width, float factor, float* to) {
    int64_t dim = 0;
    for (; dim + W <= head_dim; dim += W) store(to + dim, load_floats(from + dim) * factor);
    for (; dim < head_dim; ++dim) to[dim] = to_float(from[dim]) * factor;
    for (; dim < width; ++dim) to[dim] = 0;
}

// to[count][width]
template <class T>
inline void pack_values(const TileRows<T>& rows, int64_t head_dim, int64_t width, float* to) {
    for (int64_t token = 0; token < rows.count; ++token)
        widen(rows.values[token], head_dim, width, 1.0f, to + token * width);
}

// to[head_dim] = from * factor, in the cache's dtype.
template <class T>
inline void narrow(const float* from, int64_t head_dim, float factor, T* to) {
    int64_t dim = 0;
    for (; dim + W <= head_dim; dim += W) store_floats(to + dim, load_floats(from + dim) * factor);
    for (; dim < head_dim; ++dim) from_float(to + dim, from[dim] * factor);
}

}  // namespace
