#include "planes.h"

#include <algorithm>
#include <cstring>

#include "sizes.h"

namespace {

constexpr int64_t BLOCK = 1024;  // weights that are joined from the L1 cache

// Moves 8 fields of `bits` bits to the bytes of a word, by halves.
inline uint64_t spread(uint64_t x, int bits) {
    const uint64_t one = (1u << bits) - 1, two = (1u << 2 * bits) - 1, four = (uint64_t(1) << 4 * bits) - 1;
    x = (x & four) | (x << (32 - 4 * bits) & four << 32);
    const uint64_t pairs = two | two << 32, singles = one * 0x0001000100010001;
    x = (x & pairs) | (x << (16 - 2 * bits) & pairs << 16);
    return (x & singles) | (x << (8 - bits) & singles << 8);
}

// Reads `count` fields, of which the first begins at a byte; `end` is the end of the row.
template <int BITS>
void unpack(const uint8_t* from, const uint8_t* end, int64_t count, uint8_t* to) {
    for (int64_t i = 0; i < count; i += 8, from += BITS) {  // `to` has room for whole groups
        uint64_t group = 0;
        if (end - from >= 8)
            std::memcpy(&group, from, 8);
        else
            std::memcpy(&group, from, size_t(std::min<int64_t>(end - from, BITS)));
        group = spread(group, BITS);
        std::memcpy(to + i, &group, 8);
    }
}

void unpack(const uint8_t* from, const uint8_t* end, int bits, int64_t count, uint8_t* to) {
    switch (bits) {
        case 1: return unpack<1>(from, end, count, to);
        case 2: return unpack<2>(from, end, count, to);
        case 3: return unpack<3>(from, end, count, to);
        case 4: return unpack<4>(from, end, count, to);
        case 5: return unpack<5>(from, end, count, to);
        case 6: return unpack<6>(from, end, count, to);
        case 7: return unpack<7>(from, end, count, to);
        default: std::memcpy(to, from, size_t(count));
    }
}

template <class Word, int LOW_BYTES>
void join_block(const uint8_t* __restrict exponents, const uint8_t* __restrict top, const uint8_t* __restrict rest,
                const uint8_t* __restrict low, int rest_bits, int64_t count, Word* __restrict out) {
    constexpr int BITS = 8 * sizeof(Word), HEAD = LOW_BYTES == 1 ? 2 : 7, SHIFT = 8 * LOW_BYTES;
    for (int64_t i = 0; i < count; ++i) {
        const Word head = Word(top[i] << rest_bits | rest[i]);
        out[i] = Word(Word(head >> HEAD) << (BITS - 1) | Word(exponents[i]) << (HEAD + SHIFT) |
                      Word(head & ((1 << HEAD) - 1)) << SHIFT);
    }
    if (!low) return;
    for (int64_t i = 0; i < count; ++i) {
        if constexpr (LOW_BYTES == 1) out[i] = Word(out[i] | low[i]);
        if constexpr (LOW_BYTES == 2) out[i] |= Word(low[2 * i] | low[2 * i + 1] << 8);
    }
}

template <class Word, int LOW_BYTES>
void join(const QuirePlanes& call) {
    const int64_t size = call.size, top_stride = divide_up(size * call.top_bits, 8),
                  rest_stride = divide_up(size * call.rest_bits, 8);
    const uint8_t zeros[BLOCK] = {};
    uint8_t top[BLOCK], rest[BLOCK];
    for (int64_t row = 0; row < call.num_rows; ++row) {
        const uint8_t *top_row = call.top + row * top_stride, *rest_row = call.rest + row * rest_stride;
        for (int64_t first = 0; first < size; first += BLOCK) {
            const int64_t count = std::min(BLOCK, size - first), at = row * size + first;
            if (call.top) unpack(top_row + first * call.top_bits / 8, top_row + top_stride, call.top_bits, count, top);
            if (call.rest)
                unpack(rest_row + first * call.rest_bits / 8, rest_row + rest_stride, call.rest_bits, count, rest);
            join_block<Word, LOW_BYTES>(call.exponents ? call.exponents + at : zeros, call.top ? top : zeros,
                                        call.rest ? rest : zeros, call.low ? call.low + at * LOW_BYTES : nullptr,
                                        call.rest_bits, count, static_cast<Word*>(call.out) + at);
        }
    }
}

}  // namespace

void quire_split_planes(const void* words, uint8_t* exponents, uint8_t* heads, uint8_t* low, int64_t size,
                        int32_t item_bytes) {
    const auto split = [&](int64_t i, uint16_t upper) {
        exponents[i] = uint8_t(upper >> 7);
        heads[i] = uint8_t((upper >> 8 & 0x80) | (upper & 0x7f));
    };
    const auto *halves = static_cast<const uint16_t*>(words);
    const auto *wide = static_cast<const uint32_t*>(words);
    if (item_bytes == 2) {
        for (int64_t i = 0; i < size; ++i) split(i, halves[i]);
        return;
    }
    for (int64_t i = 0; i < size; ++i) split(i, uint16_t(wide[i] >> 16));
    for (int64_t i = 0; i < size; ++i) std::memcpy(low + 2 * i, wide + i, 2);  // little-endian
}

void quire_join_planes(const QuirePlanes* call) {
    if (call->item_bytes == 4)
        join<uint32_t, 2>(*call);
    else if (call->low_bytes == 1)
        join<uint16_t, 1>(*call);
    else
        join<uint16_t, 0>(*call);
}
