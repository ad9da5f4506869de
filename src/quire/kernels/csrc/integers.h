// The integer product of quantized linear layers: a few rows of signed bytes by a panel of 32 columns of unsigned bytes,
// accumulated in registers. Four bytes of a column are adjacent, as in the processor's dot products.
#pragma once

#include "vectors.h"

namespace {

constexpr int COLUMNS = 32;            // per panel
constexpr int STEP = 4;                // depth of one step
constexpr int BYTES = STEP * COLUMNS;  // of a panel per step
constexpr int64_t GROUP = 64;          // depth is a multiple of it
constexpr int64_t GROUP_STEPS = GROUP / STEP;

#if defined(__AVX512VNNI__)
constexpr int INTEGER_ROWS = 12;  // 24 of 32 registers hold sums
#elif defined(__AVX2__)
constexpr int INTEGER_ROWS = 3;  // 12 of 16
#else
constexpr int INTEGER_ROWS = 4;
#endif

// Prefetches lines during a product, `lines` per group of steps.
struct Ahead {
    const uint8_t* at;
    int64_t lines;

    void ask(int64_t step, int64_t group_steps) {
        for (int64_t line = step % group_steps; line < lines; line += group_steps, at += 64)
            ask_for(at);
    }
};

inline int32_t load_four(const int8_t* from) {
    int32_t four;
    std::memcpy(&four, from, sizeof four);
    return four;
}

#if defined(__AVX512VNNI__)
// In assembly, since g++ 12 copies the accumulators of the intrinsic back and forth.
inline void add_products(__m512i& sum, __m512i unsigned_bytes, __m512i signed_bytes) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
}
#elif defined(__AVX2__)
// Sums of four products. The instruction sums pairs in 16 bits; moving the signs to one side avoids overflow:
// 2 * 127 * 127 < 2^15.
inline __m256i products(__m256i weights, __m256i x, __m256i ones) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(weights, x));
    return _mm256_madd_epi16(pairs, ones);
}
#endif

// Calls finish(row, column, Ints) with the sums of x[row] by the columns from `column` on.
//
// Weights are stored plus 128: `finish` must subtract STORED_OFFSET times the row's sum of x.
template <int rows, class Finish>
__attribute__((noinline)) void multiply_integers(const int8_t* x, int64_t x_stride, const uint8_t* weights,
                                                 int64_t steps, Ahead ahead, Finish&& finish) {
#if defined(__AVX512VNNI__)
    __m512i sums[rows][2];
#pragma GCC unroll 16
    for (auto& row : sums) row[0] = row[1] = _mm512_setzero_si512();
    // Three rows per pointer, the limit of an instruction's address.
    const int8_t* at[(rows + 2) / 3];
#pragma GCC unroll 16
    for (int i = 0; i < (rows + 2) / 3; ++i) at[i] = x + 3 * i * x_stride;
    for (int64_t step = 0; step < steps; ++step, weights += BYTES) {
        const __m512i left = _mm512_loadu_si512(weights), right = _mm512_loadu_si512(weights + 64);
        ahead.ask(step, GROUP_STEPS);
#pragma GCC unroll 16
        for (int row = 0; row < rows; ++row) {
            const __m512i four = _mm512_set1_epi32(load_four(at[row / 3] + row % 3 * x_stride));
            add_products(sums[row][0], left, four);
            add_products(sums[row][1], right, four);
        }
#pragma GCC unroll 16
        for (auto& each : at) each += STEP;
    }
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row)
#pragma GCC unroll 16
        for (int half = 0; half < 2; ++half) finish(row, half * W, bits_as<Ints>(sums[row][half]));
#elif defined(__AVX2__)
    __m256i sums[rows][4];
#pragma GCC unroll 16
    for (auto& row : sums)
#pragma GCC unroll 16
        for (auto& sum : row) sum = _mm256_setzero_si256();
    const __m256i ones = _mm256_set1_epi16(1), sign = _mm256_set1_epi8(-128);
    for (int64_t step = 0; step < steps; ++step, weights += BYTES, x += STEP) {
        ahead.ask(step, GROUP_STEPS);
        for (int part = 0; part < 4; ++part) {
            const __m256i eight =
                _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 32 * part)), sign);
#pragma GCC unroll 16
            for (int row = 0; row < rows; ++row) {
                const __m256i four = _mm256_set1_epi32(load_four(x + row * x_stride));
                sums[row][part] = _mm256_add_epi32(sums[row][part], products(eight, four, ones));
            }
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) {
        alignas(32) int32_t all[COLUMNS];
        for (int part = 0; part < 4; ++part) std::memcpy(all + 8 * part, &sums[row][part], 32);
        for (int column = 0; column < COLUMNS; column += W) finish(row, column, load<Ints>(all + column));
    }
#else
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) {
        int32_t sums[COLUMNS] = {};
        const int8_t* fours = x + row * x_stride;
        const uint8_t* at = weights;
        for (int64_t step = 0; step < steps; ++step, at += BYTES, fours += STEP)
            for (int column = 0; column < COLUMNS; ++column)
                for (int i = 0; i < STEP; ++i) sums[column] += (at[column * STEP + i] - 128) * fours[i];
        for (int column = 0; column < COLUMNS; column += W) finish(row, column, load<Ints>(sums + column));
    }
#endif
}

#if defined(__AVX512VNNI__)
constexpr int32_t STORED_OFFSET = 128;
#else
constexpr int32_t STORED_OFFSET = 0;
#endif

// A quantized row of x.
struct IntegerRow {
    float scale;
    int32_t sum;  // sum of its integers
};

// Quantizes x with a scale that makes its largest value 127. NaN or infinity makes the scale NaN.
// group_sums: sums of each 64 integers, or null. to: whole groups, zero-padded.
template <class T>
inline IntegerRow quantize_row(const T* x, int64_t depth, int8_t* to, float* group_sums) {
    const auto numbers = [=](int64_t k) {
        if (k + W <= depth) return load_floats(x + k);
        T rest[W] = {};
        if (k < depth) std::memcpy(rest, x + k, size_t(depth - k) * sizeof(T));
        return load_floats(rest);
    };
    Floats highest{}, poison{};
    for (int64_t k = 0; k < depth; k += W) {
        const Floats value = numbers(k);
        highest = max(absolute(value), highest);
        poison += value * 0.0f;
    }
    const float maximum = reduce_max(highest);
    const float factor = maximum > 1e-30f ? 127.0f / maximum : 0.0f;
    Words sums{};  // may wrap around in a row with NaN, whose sums are meaningless
    for (int64_t first = 0; first < depth; first += 64) {
        Words part{};
        for (int64_t k = first; k < first + 64; k += W) {
            const Ints integers = round_to_ints(numbers(k) * factor);
            store_bytes(to + k, integers);
            part += bits_as<Words>(integers);
        }
        if (group_sums) group_sums[first / 64] = reduce_sum(__builtin_convertvector(bits_as<Ints>(part), Floats));
        sums += part;
    }
    uint32_t sum = 0;
    for (int i = 0; i < W; ++i) sum += sums[i];
    const float bad = reduce_sum(poison);
    return {(maximum > 1e-30f ? maximum / 127.0f : 0.0f) + bad, bad == bad ? int32_t(sum) : 0};
}

}  // namespace
