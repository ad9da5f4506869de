// Vectors of floats in memory as any type of checkpoints. A store rounds once, to nearest even; NaN stays NaN.
#pragma once

#include "sizes.h"
#include "vectors.h"

namespace {

struct Float16 {
    uint16_t bits;
};

inline Floats load_floats(const Float16* from) {
#if defined(__AVX512F__)
    return bits_as<Floats>(_mm512_cvtph_ps(load<__m256i>(from)));
#elif defined(__AVX2__)
    return bits_as<Floats>(_mm256_cvtph_ps(load<__m128i>(from)));
#else
    const Words halves = __builtin_convertvector(load<Halves>(from), Words);
    const Words exponent = halves & 0x7c00;
    // A product corrects the exponent's bias, of denormals too.
    const Floats magnitude = bits_as<Floats>((halves & 0x7fff) << 13) * 0x1p112f;
    const Words special = exponent == 0x7c00 ? Words{} + 0x7f800000 : Words{};
    return bits_as<Floats>(bits_as<Words>(magnitude) | special | (halves & 0x8000) << 16);
#endif
}
inline Floats load_floats(const double* from) {
    typedef double Doubles __attribute__((vector_size(8 * W)));
    return __builtin_convertvector(load<Doubles>(from), Floats);
}

inline void store_exact(float* to, Floats x) { store(to, x); }
inline void store_exact(BFloat16* to, Floats x) {
    const Words words = round_to_bfloat16<Floats, Words>(x);
#if defined(__AVX512F__)  // compilers shuffle
    store(to, _mm512_cvtepi32_epi16(bits_as<__m512i>(words)));
#else
    store(to, __builtin_convertvector(words, Halves));
#endif
}
inline void store_exact(Float16* to, Floats x) {
#if defined(__AVX512F__)
    store(to, _mm512_cvtps_ph(bits_as<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
    store(to, _mm256_cvtps_ph(bits_as<__m256>(x), _MM_FROUND_TO_NEAREST_INT));
#else
    const Ints word = bits_as<Ints>(x), magnitude = word & 0x7fffffff;
    const Ints normal = (magnitude - (112 << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    // The last bit of numbers from 1/2 on is that of denormals, so a sum rounds them.
    const Ints denormal = bits_as<Ints>(bits_as<Floats>(magnitude) + 0.5f) - (126 << 23);
    const Ints finite = magnitude < 113 << 23 ? denormal : normal;
    const Ints infinite = magnitude > 255 << 23 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : Ints{} + 0x7c00;
    const Ints half = (magnitude < 0x477ff000 ? finite : infinite) | (word >> 16 & 0x8000);  // 65,520
    store(to, __builtin_convertvector(bits_as<Words>(half), Halves));
#endif
}

// Rounds as a store and a load would.
inline Floats rounded(Floats x, const float*) { return x; }
inline Floats rounded(Floats x, const BFloat16*) { return bits_as<Floats>(round_to_bfloat16<Floats, Words>(x) << 16); }

// Calls body(begin, end) for parts of a range, which start at multiples of all vectors' sizes.
template <class Body>
inline void each_part(int64_t size, int32_t num_threads, Body&& body) {
    constexpr int64_t part = 1 << 14;
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1)
    for (int64_t i = 0; i < divide_up(size, part); ++i) body(i * part, size < (i + 1) * part ? size : (i + 1) * part);
}

template <class To, class Function, class... From>
__attribute__((noinline)) void map_vectors(To* out, int64_t size, Function function, const From*... sources) {
#pragma GCC unroll 4
    for (int64_t at = 0; at < size; at += W) store_exact(out + at, function(load_floats(sources + at)...));
}

// The last elements of an array, padded to a vector.
template <class T>
struct Padded {
    T elements[W] = {};
    Padded(const T* from, int64_t count) { std::memcpy(elements, from, size_t(count) * sizeof(T)); }
};

// out[i] = function(sources[i]...). The same code computes all elements, so equal inputs give equal bits.
template <class To, class Function, class... From>
inline void map(To* out, int64_t size, int32_t num_threads, Function function, const From*... sources) {
    each_part(size, num_threads, [&](int64_t begin, int64_t end) {
        const int64_t rest = (end - begin) % W, last = end - rest;
        map_vectors(out + begin, last - begin, function, (sources + begin)...);
        if (rest == 0) return;
        To padded[W];
        map_vectors(padded, W, function, Padded<From>(sources + last, rest).elements...);
        std::memcpy(out + last, padded, size_t(rest) * sizeof(To));
    });
}

}  // namespace
