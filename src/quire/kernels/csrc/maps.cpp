// Sums, products, activations and conversions of each element.
#include "activations.h"
#include "elementwise.h"
#include "floats.h"

namespace {

template <class T, class Function>
void map_one(const QuireMap& call, Function function) {
    map(static_cast<T*>(call.out), call.size, call.num_threads, function, static_cast<const T*>(call.x));
}
template <class T, class Function>
void map_two(const QuireMap& call, Function function) {
    map(static_cast<T*>(call.out), call.size, call.num_threads, function, static_cast<const T*>(call.x),
        static_cast<const T*>(call.y));
}

template <class T>
void scale(const QuireMap& call) {
    map_one<T>(call, [factor = call.factor](Floats x) { return x * factor; });
}

template <class T>
void cap_all(const QuireMap& call) {
    map_one<T>(call, [factor = call.factor](Floats x) { return cap(x, factor); });
}

template <class T>
void gate(const QuireGate& call) {
    const auto row = [&](int64_t i, int32_t num_threads) {
        const T* x = static_cast<const T*>(call.x) + 2 * i * call.size;
        const auto function = [](Floats gate, Floats up) { return rounded(silu_exact(gate), (const T*)nullptr) * up; };
        map(static_cast<T*>(call.out) + i * call.size, call.size, num_threads, function, x, x + call.size);
    };
    if (call.num_rows == 1) return row(0, call.num_threads);
#pragma omp parallel for schedule(static) num_threads(call.num_threads) if (call.num_threads > 1)
    for (int64_t i = 0; i < call.num_rows; ++i) row(i, 1);
}

template <class T>
void gate_heads(const QuireGateHeads& call) {
    const auto function = [](Floats x, Floats gate) { return x * rounded(gated(splat(1.0f), gate), (const T*)nullptr); };
#pragma omp parallel for schedule(static) num_threads(call.num_threads) if (call.num_threads > 1)
    for (int64_t i = 0; i < call.num_tokens * call.num_heads; ++i) {
        const int64_t token = i / call.num_heads, head = i % call.num_heads, at = i * call.head_dim;
        map(static_cast<T*>(call.out) + at, call.head_dim, 1, function, static_cast<const T*>(call.x) + at,
            static_cast<const T*>(call.gates) + token * call.token_stride + head * call.head_stride);
    }
}

template <class From>
void convert(const QuireConvert& call) {
    const auto to = [&](auto* out) {
        map(out, call.size, call.num_threads, [](Floats x) { return x; }, static_cast<const From*>(call.x));
    };
    switch (call.to) {
        case QUIRE_FLOAT32: return to(static_cast<float*>(call.out));
        case QUIRE_BFLOAT16: return to(static_cast<BFloat16*>(call.out));
        case QUIRE_FLOAT16: return to(static_cast<Float16*>(call.out));
    }
}

// Whether no element has an exponent of ones.
template <class Word>
bool is_finite(const void* x, int64_t size, int32_t num_threads, Word exponent) {
    typedef Word Vector __attribute__((vector_size(4 * W)));
    constexpr int64_t lanes = sizeof(Vector) / sizeof(Word);
    const Word* words = static_cast<const Word*>(x);
    bool all = true;
    each_part(size, num_threads, [&](int64_t begin, int64_t end) {
        Vector found = Vector{};
        int64_t at = begin;
        for (; at + lanes <= end; at += lanes) {
            const Vector masked = load<Vector>(words + at) & exponent;
            found |= bits_as<Vector>(masked == exponent);
        }
        Word any = 0;
        for (int64_t lane = 0; lane < lanes; ++lane) any |= found[lane];
        for (; at < end; ++at) any |= Word((words[at] & exponent) == exponent);
        if (any) __atomic_store_n(&all, false, __ATOMIC_RELAXED);
    });
    return all;
}

}  // namespace

void quire_add_float32(const QuireMap* call) {
    map_two<float>(*call, [](Floats x, Floats y) { return x + y; });
}
void quire_add_bfloat16(const QuireMap* call) {
    map_two<BFloat16>(*call, [](Floats x, Floats y) { return x + y; });
}
void quire_multiply_float32(const QuireMap* call) {
    map_two<float>(*call, [](Floats x, Floats y) { return x * y; });
}
void quire_multiply_bfloat16(const QuireMap* call) {
    map_two<BFloat16>(*call, [](Floats x, Floats y) { return x * y; });
}
void quire_scale_float32(const QuireMap* call) { scale<float>(*call); }
void quire_scale_bfloat16(const QuireMap* call) { scale<BFloat16>(*call); }
void quire_cap_float32(const QuireMap* call) { cap_all<float>(*call); }
void quire_cap_bfloat16(const QuireMap* call) { cap_all<BFloat16>(*call); }
void quire_silu_float32(const QuireMap* call) { map_one<float>(*call, silu_exact); }
void quire_silu_bfloat16(const QuireMap* call) { map_one<BFloat16>(*call, silu_exact); }
void quire_relu_float32(const QuireMap* call) { map_one<float>(*call, relu); }
void quire_relu_bfloat16(const QuireMap* call) { map_one<BFloat16>(*call, relu); }
void quire_gelu_float32(const QuireMap* call) { map_one<float>(*call, gelu); }
void quire_gelu_bfloat16(const QuireMap* call) { map_one<BFloat16>(*call, gelu); }
void quire_gelu_tanh_float32(const QuireMap* call) { map_one<float>(*call, gelu_tanh); }
void quire_gelu_tanh_bfloat16(const QuireMap* call) { map_one<BFloat16>(*call, gelu_tanh); }

void quire_gate_float32(const QuireGate* call) { gate<float>(*call); }
void quire_gate_bfloat16(const QuireGate* call) { gate<BFloat16>(*call); }
void quire_gate_heads_float32(const QuireGateHeads* call) { gate_heads<float>(*call); }
void quire_gate_heads_bfloat16(const QuireGateHeads* call) { gate_heads<BFloat16>(*call); }

void quire_convert(const QuireConvert* call) {
    switch (call->from) {
        case QUIRE_FLOAT32: return convert<float>(*call);
        case QUIRE_BFLOAT16: return convert<BFloat16>(*call);
        case QUIRE_FLOAT16: return convert<Float16>(*call);
        case QUIRE_FLOAT64: return convert<double>(*call);
    }
}

int32_t quire_is_finite(const void* x, int64_t size, int32_t type, int32_t num_threads) {
    switch (type) {
        case QUIRE_FLOAT32: return is_finite<uint32_t>(x, size, num_threads, 0x7f800000);
        case QUIRE_BFLOAT16: return is_finite<uint16_t>(x, size, num_threads, 0x7f80);
        case QUIRE_FLOAT16: return is_finite<uint16_t>(x, size, num_threads, 0x7c00);
        default: return is_finite<uint64_t>(x, size, num_threads, uint64_t(0x7ff) << 52);
    }
}
