// Vectors of floats in the compiled level's width, by the compiler's vector extension.
//
// The same code becomes SSE or NEON, AVX2 or AVX-512: a level is only a set of compiler flags. Everything has internal
// linkage, so that levels cannot replace each other's functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int W = 16;  // lanes
#elif defined(__AVX__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float Floats __attribute__((vector_size(4 * W)));
typedef int32_t Ints __attribute__((vector_size(4 * W)));
typedef uint32_t Words __attribute__((vector_size(4 * W)));
typedef uint16_t Halves __attribute__((vector_size(2 * W)));

// Whether products prefetch their own stream. A processor with bfloat16 products but without AMX is AMD's, whose hardware
// prefetches better: software prefetch slowed up to 16 rows by 5 to 30 % (Zen 4). All levels prefetch the next stream.
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
constexpr bool ASKS_AHEAD = false;
#else
constexpr bool ASKS_AHEAD = true;
#endif

// Into AMD's L2 cache: the L1 cache has fewer outstanding lines, which halves the bandwidth.
inline void ask_for(const void* line) { __builtin_prefetch(line, 0, ASKS_AHEAD ? 3 : 2); }

struct BFloat16 {
    uint16_t bits;
};

template <class To, class From>
inline To load(const From* from) {
    To to;
    std::memcpy(&to, from, sizeof to);
    return to;
}

template <class Vector, class To>
inline void store(To* to, Vector vector) {
    std::memcpy(to, &vector, sizeof vector);
}

template <class To, class From>
inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

inline Floats splat(float x) { return x - Floats{}; }
inline Floats max(Floats a, Floats b) {  // b if either is NaN
#if defined(__AVX512F__)  // compilers generate a comparison and a blend
    return bits_as<Floats>(_mm512_max_ps(bits_as<__m512>(a), bits_as<__m512>(b)));
#elif defined(__AVX2__)
    return bits_as<Floats>(_mm256_max_ps(bits_as<__m256>(a), bits_as<__m256>(b)));
#else
    return a > b ? a : b;
#endif
}

// -- memory and float -------------------------------------------------------------------------------------------------

inline Floats load_floats(const float* from) { return load<Floats>(from); }
inline Words load_words(const BFloat16* from) {
#if defined(__AVX512F__)  // compilers split __builtin_convertvector into several instructions
    return bits_as<Words>(_mm512_cvtepu16_epi32(load<__m256i>(from)));
#elif defined(__AVX2__)
    return bits_as<Words>(_mm256_cvtepu16_epi32(load<__m128i>(from)));
#else
    return __builtin_convertvector(load<Halves>(from), Words);
#endif
}
inline Floats load_floats(const BFloat16* from) { return bits_as<Floats>(load_words(from) << 16); }
inline float to_float(float x) { return x; }
inline float to_float(BFloat16 x) { return bits_as<float>(uint32_t(x.bits) << 16); }

// Rounds to nearest, ties to even; NaN stays NaN. For a vector or one number.
template <class Float, class Word>
inline Word round_to_bfloat16(Float x) {
    const Word word = bits_as<Word>(x);
    const Word rounded = (word + 0x7fff + ((word >> 16) & 1)) >> 16;
    return x == x ? rounded : Word{} + 0x7fc0;
}
inline void store_floats(float* to, Floats x) { store(to, x); }
inline void store_floats(BFloat16* to, Floats x) {
#if defined(__AVX512BF16__)  // treats denormals as zero
    store(to, _mm512_cvtneps_pbh(bits_as<__m512>(x)));
#else
    store(to, __builtin_convertvector(round_to_bfloat16<Floats, Words>(x), Halves));
#endif
}
inline void from_float(float* to, float x) { *to = x; }
inline void from_float(BFloat16* to, float x) { to->bits = uint16_t(round_to_bfloat16<float, uint32_t>(x)); }

// -- small integers ---------------------------------------------------------------------------------------------------

inline Ints load_ints(const int8_t* from) {
#if defined(__AVX512F__)
    return bits_as<Ints>(_mm512_cvtepi8_epi32(load<__m128i>(from)));
#elif defined(__AVX2__)
    return bits_as<Ints>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
    Ints x;
    for (int i = 0; i < W; ++i) x[i] = from[i];
    return x;
#endif
}

// Rounds |x| < 2^22 to nearest, ties to even. Uses an instruction, since rounding by addition could be fused with the
// multiplication before it, and differ between levels.
inline Ints round_to_ints(Floats x) {
#if defined(__AVX512F__)
    return bits_as<Ints>(_mm512_cvtps_epi32(bits_as<__m512>(x)));
#elif defined(__AVX2__)
    return bits_as<Ints>(_mm256_cvtps_epi32(bits_as<__m256>(x)));
#else
    return bits_as<Ints>(x + splat(12582912.0f)) - 0x4b400000;
#endif
}

inline void store_bytes(int8_t* to, Ints x) {
#if defined(__AVX512F__)
    store(to, _mm512_cvtepi32_epi8(bits_as<__m512i>(x)));
#else
    for (int i = 0; i < W; ++i) to[i] = int8_t(x[i]);
#endif
}

// -- across lanes -----------------------------------------------------------------------------------------------------

template <int... lanes, class Vector>
inline Vector shuffle(Vector a, Vector b, std::integer_sequence<int, lanes...>) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, lanes...);
#else
    return __builtin_shuffle(a, b, Ints{lanes...});
#endif
}

template <int first, class Lanes>
struct Zip;
template <int first, int... i>
struct Zip<first, std::integer_sequence<int, i...>> {
    using type = std::integer_sequence<int, (first + i / 2 + i % 2 * W)...>;
};
template <int by, class Lanes>
struct Turn;
template <int by, int... i>
struct Turn<by, std::integer_sequence<int, i...>> {
    using type = std::integer_sequence<int, ((i + by) % W)...>;
};
using Lanes = std::make_integer_sequence<int, W>;

// Transposes W vectors into `lanes` vectors of W lanes. Each round interleaves the first half with the second, which
// rotates the bits of (row, lane) by one; after log2(W) rounds, rows and lanes are swapped. Unused lanes are skipped.
template <int lanes = W>
inline void transpose(Words (&rows)[W]) {
    int count = W;
    for (int round = 1; round < W; round *= 2) {
        Words next[W];
        const bool drops = count > lanes;
#pragma GCC unroll 16
        for (int i = 0; i < count / 2; ++i) {
            next[drops ? i : 2 * i] = shuffle(rows[i], rows[i + count / 2], typename Zip<0, Lanes>::type{});
            if (!drops) next[2 * i + 1] = shuffle(rows[i], rows[i + count / 2], typename Zip<W / 2, Lanes>::type{});
        }
        if (drops) count /= 2;
        std::memcpy(rows, next, size_t(count) * sizeof(Words));
    }
}

template <int by = W / 2, class Combine>
inline float reduce(Floats x, Combine combine) {
    x = combine(x, shuffle(x, x, typename Turn<by, Lanes>::type{}));
    if constexpr (by > 1) return reduce<by / 2>(x, combine);
    return x[0];
}
inline float reduce_max(Floats x) {
    return reduce(x, [](Floats a, Floats b) { return max(a, b); });
}
inline float reduce_sum(Floats x) {
    return reduce(x, [](Floats a, Floats b) { return a + b; });
}

// -- exponential ------------------------------------------------------------------------------------------------------

// 2^x for x <= 0, at least 2^-126; NaN stays NaN. The error is about one unit in the last place, or 9e-5 for bfloat16.
// 2^x = 2^n 2^f with an integer n. 2^f is its Taylor series in f ln 2 for |f| <= 1/2, or for bfloat16 the polynomial with
// the least relative error that is 1 at 0, for 0 <= f < 1.
template <class To = float>
inline Floats exp2_of_negative(Floats x) {
    constexpr bool is_short = sizeof(To) == 2;
    const auto series = [](Floats f) {
        Floats y = splat(is_short ? 7.7067051e-2f : 1.5252734e-5f);
        if (is_short)
            for (float coefficient : {2.2764498e-1f, 6.9511679e-1f, 1.0f}) y = y * f + coefficient;
        else
            for (float coefficient : {1.5403530e-4f, 1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f,
                                      6.9314718e-1f, 1.0f})
                y = y * f + coefficient;
        return y;
    };
#if defined(__AVX512DQ__)
    const __m512 given = bits_as<__m512>(x);
    const Floats f = bits_as<Floats>(_mm512_reduce_ps(given, is_short ? _MM_FROUND_TO_NEG_INF : _MM_FROUND_TO_NEAREST_INT));
    return bits_as<Floats>(_mm512_scalef_ps(bits_as<__m512>(series(f)), is_short ? given : bits_as<__m512>(x - f)));
#else
    constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it rounds and leaves n in the lowest bits
    x = max(splat(-126.0f), x);
    const Floats shifted = x - (is_short ? 0.5f : 0.0f) + to_integer;
    const Floats f = x - (shifted - to_integer);
    return bits_as<Floats>(bits_as<Words>(series(f)) + (bits_as<Words>(shifted) << 23));
#endif
}
inline float exp2_of_negative(float x) { return exp2_of_negative(splat(x))[0]; }

inline Floats absolute(Floats x) { return bits_as<Floats>(bits_as<Words>(x) & 0x7fffffffu); }

// x / (1 + e^-x), to the precision of `To`.
template <class To>
inline Floats silu(Floats x) {
    const Floats e = exp2_of_negative<To>(absolute(x) * -1.44269504f);  // the exponent is never above 0
    const Floats above = x * (x > Floats{} ? splat(1.0f) : e), below = e + 1.0f;
#if defined(__AVX512F__)
    if (sizeof(To) == 2) return above * bits_as<Floats>(_mm512_rcp14_ps(bits_as<__m512>(below)));
#endif
    return above / below;
}

// `count` of `size` floats from addend[at] on, as an adapter's output for a row; null adds nothing.
template <int size>
struct AddedRow {
    AddedRow(const float* addend, int64_t at, int64_t count) : from(addend ? addend + at : nullptr) {
        if (!from || count >= size) return;
        std::memset(filled, 0, sizeof filled);
        std::memcpy(filled, from, size_t(count) * sizeof(float));
        from = filled;
    }
    Floats to(Floats x, int i) const { return from ? x + load_floats(from + i) : x; }

  private:
    float filled[size];
    const float* from;
};

}  // namespace
