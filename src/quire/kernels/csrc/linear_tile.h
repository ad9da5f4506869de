// A tile of a linear layer's product: a few rows by one panel of outputs, accumulated in registers.
//
// The level decides how to multiply: dot products of bfloat16 pairs, fused multiply-add after widening, or AMX
// (linear_amx.h). All read the same panels.
#pragma once

#include <type_traits>

#include "sizes.h"
#include "vectors.h"

namespace {

constexpr int64_t OUTPUTS = 2 * W;  // in a panel
constexpr int64_t AHEAD = 4096;     // prefetch distance in bytes

template <class T>
constexpr int64_t EACH = 4 / sizeof(T);  // adjacent inputs
#if defined(__AMX_BF16__)
template <class T>
constexpr int64_t DEPTH = sizeof(T) == 2 ? 32 : 1;  // a panel's depth is a multiple of it
#else
template <class T>
constexpr int64_t DEPTH = EACH<T>;
#endif

#if defined(__AVX512F__)
constexpr int64_t MOST_ROWS = 12;  // 24 of 32 registers hold sums
template <class T>
constexpr bool WIDENS = false;
#else
constexpr int64_t MOST_ROWS = 6;  // 12 of 16
template <class T>
constexpr bool WIDENS = sizeof(T) == 2;  // words of pairs need registers, too: 4 rows at most, or see WideningSource
#endif

// Numbers of a panel that is decoded for many rows. Without AVX2, instructions cannot mask what they load.
template <class T>
using Decoded = std::conditional_t<WIDENS<T> && W == 4, float, T>;

// Up to so many rows, two panels are multiplied at once, whose sums do not wait for each other.
#if defined(__AVX512BF16__)
constexpr int64_t PAIRED_ROWS = 0;
#else
constexpr int64_t PAIRED_ROWS = W == 16 ? 2 : 1;
#endif

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

#if defined(__AVX512BF16__)
inline int32_t word_at(const BFloat16* x) { return load<int32_t>(x); }
#endif

// Calls use(i) with constants 0 to N - 1. An array with other indices would be stored in each step.
template <class Use, int... i>
__attribute__((always_inline)) inline void for_each(Use&& use, std::integer_sequence<int, i...>) {
    (use(std::integral_constant<int, i>{}), ...);
}
template <int N, class Use>
__attribute__((always_inline)) inline void for_each(Use&& use) {
    for_each(use, std::make_integer_sequence<int, N>{});
}

// Prefetches lines from `ahead` on, step by step.
struct Asker {
    const char* ahead;
    int64_t asking;  // inputs of 32 that prefetch a line, or more than 32: all prefetch two

    __attribute__((always_inline)) void operator()(int64_t step) {
        if (__builtin_expect(step % 32 < asking, 1)) {
            ask_for(ahead);
            if (asking > 32) ask_for(ahead += 64);
            ahead += 64;
        }
    }
};

// A source yields a panel's words in the order of depth, `STEPS` steps at a time, each of `HALVES` vectors.
template <class T>
struct PlainSource {
    static constexpr int STEPS = 1, HALVES = 2;
    const T* panel;
    Asker ask;

    __attribute__((always_inline)) void read(int64_t step, Words (&words)[1][2]) {
        ask(step);
        words[0][0] = load<Words>(panel);
        words[0][1] = load<Words>(panel + EACH<T> * W);
        panel += EACH<T> * OUTPUTS;
    }
};

// The inputs of a plain panel of bfloat16 one after the other, as words of float32: those that end with an input, whose
// other half is masked. They need fewer registers than pairs, so that a tile has more rows.
struct WideningSource {
    static constexpr int STEPS = 1, HALVES = 2;
    const BFloat16* panel;
    Asker ask;

    __attribute__((always_inline)) void read(int64_t step, Words (&words)[1][2]) {
        ask(step);
        const int64_t odd = step % 2;
        for_each<2>([&](auto half) __attribute__((always_inline)) {
            if (__builtin_expect(step == 0, 0))
                words[0][half] = load<Words>(panel + half * 2 * W) << 16;  // nothing lies before it
            else
                words[0][half] = load<Words>(panel + half * 2 * W + odd - 1) & 0xffff0000u;
        });
        panel += odd * 2 * OUTPUTS;
    }
};

// As WideningSource, from the words of another source of pairs.
template <class Source>
struct SplittingSource {
    static constexpr int STEPS = 2 * Source::STEPS, HALVES = 2;
    Source source;

    __attribute__((always_inline)) void read(int64_t step, Words (&words)[STEPS][2]) {
        Words pairs[Source::STEPS][2];
        source.read(step, pairs);
        for_each<STEPS>([&](auto i) __attribute__((always_inline)) {
            for_each<2>([&](auto half) __attribute__((always_inline)) {
                words[i][half] = i % 2 ? pairs[i / 2][half] & 0xffff0000u : pairs[i / 2][half] << 16;
            });
        });
    }
};

// Two panels at once: the sums of one alone would wait for each other.
template <class First, class Second>
struct PairSource {
    static constexpr int STEPS = First::STEPS, HALVES = 4;
    static_assert(STEPS == Second::STEPS);
    First first;
    Second second;

    __attribute__((always_inline)) void read(int64_t step, Words (&words)[STEPS][4]) {
        Words one[STEPS][2], other[STEPS][2];
        first.read(step, one);
        second.read(step, other);
        for_each<2 * STEPS>([&](auto at) __attribute__((always_inline)) {
            words[at / 2][at % 2] = one[at / 2][at % 2];
            words[at / 2][2 + at % 2] = other[at / 2][at % 2];
        });
    }
};

// Rows for fused multiply-add or pairs: dense and zero-padded, with a stride that spreads them over the L1 cache's sets.
template <class T>
struct RowTile {
#if defined(__AVX512BF16__)
    using Left = T;
#else
    using Left = float;
#endif
    static constexpr int64_t ROWS = 1;  // laid out together
    static constexpr int64_t MOST = WIDENS<T> ? 4 : MOST_ROWS;
    static constexpr int64_t MOST_SPLIT = WIDENS<T> ? 5 : MOST;  // with SplittingSource, which needs registers
    static constexpr int64_t DEPTH_PART = INT64_MAX;  // parts that stay in the L1 cache for all tiles gain nothing here

    static int64_t stride(int64_t depth) { return (divide_up(depth * int64_t(sizeof(Left)), 64) | 1) * 64 / sizeof(Left); }
    static int64_t size(int64_t rows, int64_t depth) { return rows * stride(depth); }

    static void lay_out(const T* x, int64_t x_stride, int64_t rows, int64_t count, int64_t depth, Left* left) {
        for (int64_t row = 0; row < rows; ++row, x += x_stride, left += stride(depth)) {
            int64_t at = 0;
            if constexpr (sizeof(T) == sizeof(Left)) {
                std::memcpy(left, x, size_t(at = count) * sizeof(T));
            } else {
                for (; at + W <= count; at += W) store(left + at, load_floats(x + at));
                for (; at < count; ++at) left[at] = to_float(x[at]);
            }
            if (at < depth) std::memset(left + at, 0, size_t(depth - at) * sizeof(Left));
        }
    }

    // Computes sums[rows][OUTPUTS] for rows of x from `row` on. Prefetches `lines` lines per 32 of depth.
    template <class Right>
    static void multiply(const Left* left, int64_t row, int64_t rows, int64_t depth, int64_t first, int64_t end, bool adds,
                         const Right* panel, float* sums, const char* ahead, int64_t lines) {
        using Source = std::conditional_t<std::is_same_v<Right, T>, PlainSource<T>, WideningSource>;
        multiply(left, row, rows, depth, first, end, adds, Source{panel + first * OUTPUTS, ahead, lines * EACH<T>}, sums, 0);
    }

    // As above with the words of a source, which begins at `first`. Sums of a second panel are `apart` elements behind.
    template <class Source>
    static void multiply(const Left* left, int64_t row, int64_t rows, int64_t depth, int64_t first, int64_t end, bool adds,
                         const Source& source, float* sums, int64_t apart) {
        with_rows<Source::HALVES == 2 ? MOST : PAIRED_ROWS>(rows, left + row * stride(depth) + first, stride(depth),
                                                            end - first, adds, source, sums, apart);
    }

  private:
    template <int64_t rows, class... Arguments>
    static void with_rows(int64_t count, const Arguments&... arguments) {
        if (count == rows) return add_up<rows>(arguments...);
        if constexpr (rows > 1) with_rows<rows - 1>(count, arguments...);
    }

    template <int64_t rows, class Source>
    __attribute__((noinline)) static void add_up(const Left* left, int64_t between, int64_t depth, bool adds,
                                                 Source source, float* sums, int64_t apart) {
        constexpr int HALVES = Source::HALVES;
        Floats sum[rows][HALVES] = {};
        const auto at = [&](int64_t row, int half) { return sums + half / 2 * apart + row * OUTPUTS + half % 2 * W; };
        // Loops over the sums are unrolled: the compiler would store an array in each step that prefetches.
        if (adds)
#pragma GCC unroll 12
            for (int64_t row = 0; row < rows; ++row)
#pragma GCC unroll 4
                for (int half = 0; half < HALVES; ++half) sum[row][half] = load_floats(at(row, half));
        const auto add = [&](int64_t step, const Words(&words)[HALVES]) __attribute__((always_inline)) {
#if defined(__AVX512BF16__)
            if constexpr (sizeof(T) == 2) {
#pragma GCC unroll 12
                for (int64_t row = 0; row < rows; ++row) {
                    const __m512bh x = (__m512bh)_mm512_set1_epi32(word_at(left + row * between + step));
                    for_each<HALVES>([&](auto half) __attribute__((always_inline)) {
                        sum[row][half] = (Floats)_mm512_dpbf16_ps((__m512)sum[row][half], (__m512bh)words[half], x);
                    });
                }
                return;
            }
#endif
#pragma GCC unroll 2
            for (int64_t each = 0; each < EACH<T>; ++each) {
                Floats right[HALVES];
                for_each<HALVES>([&](auto half) __attribute__((always_inline)) {
                    if (EACH<T> == 1)
                        right[half] = bits_as<Floats>(words[half]);
                    else
                        right[half] = bits_as<Floats>(each ? words[half] & 0xffff0000u : words[half] << 16);
                });
#pragma GCC unroll 12
                for (int64_t row = 0; row < rows; ++row) {
                    const Floats x = splat(to_float(left[row * between + step + each]));
                    for_each<HALVES>([&](auto half) __attribute__((always_inline)) { sum[row][half] += x * right[half]; });
                }
            }
        };
        for (int64_t step = 0; step < depth; step += Source::STEPS * EACH<T>) {
            Words words[Source::STEPS][HALVES];
            source.read(step, words);
            for_each<Source::STEPS>([&](auto i) __attribute__((always_inline)) {
                if (i == 0 || step + i * EACH<T> < depth) add(step + i * EACH<T>, words[i]);
            });
        }
#pragma GCC unroll 12
        for (int64_t row = 0; row < rows; ++row)
#pragma GCC unroll 4
            for (int half = 0; half < HALVES; ++half) store(at(row, half), sum[row][half]);
    }
};

}  // namespace
