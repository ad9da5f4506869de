// Activations to a few units in the last place of float32.
#pragma once

#include "vectors.h"

namespace {

template <class... Coefficients>
inline Floats polynomial(Floats x, float first, Coefficients... others) {
    Floats y = splat(first);
    ((y = y * x + others), ...);
    return y;
}

// e^(x + rest) for x <= 0 and a tiny rest. e^x = 2^n e^r with an integer n; the polynomial has the least relative error.
inline Floats exp_of_negative(Floats x, Floats rest = Floats{}) {
    constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it rounds and leaves n in the lowest bits
    x = max(splat(-104.0f), x);                // below, e^x is 0
    const Floats shifted = x * 1.44269504f + to_integer, n = shifted - to_integer;
    const Floats r = x - n * 0.693359375f + n * 2.12194440e-4f + rest;  // ln 2 in two parts; n times the first is exact
    const Floats y =
        polynomial(r, 1.38142211e-3f, 8.36889867e-3f, 4.16684057e-2f, 1.66665191e-1f, 4.99999933e-1f, 1.0f, 1.0f);
#if defined(__AVX512F__)
    return bits_as<Floats>(_mm512_scalef_ps(bits_as<__m512>(y), bits_as<__m512>(n)));
#else  // 2^n in two factors, since n may be below the least exponent
    const Ints whole = bits_as<Ints>(shifted) - bits_as<int32_t>(to_integer), half = whole >> 1;
    const auto power = [](Ints exponent) { return bits_as<Floats>((exponent + 127) << 23); };
    return y * power(half) * power(whole - half);
#endif
}

// x / (1 + e^-z)
inline Floats gated(Floats x, Floats z) {
    const Floats e = exp_of_negative(-absolute(z));
    return x * (z > Floats{} ? splat(1.0f) : e) / (e + 1.0f);
}

inline Floats silu_exact(Floats x) { return gated(x, x); }
inline Floats relu(Floats x) { return max(Floats{}, x); }

// x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))
inline Floats gelu_tanh(Floats x) { return gated(x, x * (x * x * 0.0713548163f + 1.59576912f)); }

// cap * tanh(x / cap)
inline Floats cap(Floats x, float most) {
    const Floats e = exp_of_negative(absolute(x) * (-2.0f / most)), capped = most * (1.0f - e) / (1.0f + e);
    return x > Floats{} ? capped : -capped;
}

// x Φ(x), where Φ(-a) = e^(-a²/2) M(a) for a > 0. M(a) (a + 5/2) is a polynomial of 1 - 5 / (a + 5/2), fitted for a < 15.
inline Floats gelu(Floats x) {
    const Floats a = -max(splat(-15.0f), -absolute(x));
    const Floats inverse = 1.0f / (a + 2.5f);
    const Floats ratio = polynomial(1.0f - 5.0f * inverse, -1.57702402e-4f, -3.11622904e-4f, 6.84412774e-4f,
                                    2.52393278e-3f, -1.60083007e-3f, -1.63861855e-2f, 9.23587574e-3f, 1.31986979e-1f,
                                    -4.33692012e-1f, 7.06656660e-1f);
    // a² in two parts: the square of its upper bits is exact.
    const Floats upper = bits_as<Floats>(bits_as<Words>(a) & 0xfffff000u);
    const Floats e = exp_of_negative(upper * upper * -0.5f, (a - upper) * (a + upper) * -0.5f);
    const Floats below = e * ratio * inverse;
    return x * (x > Floats{} ? 1.0f - below : below);
}

}  // namespace
