// Splits floats into their exponents and their other bits, for coding, and joins them again.
#include <cstdint>
#include <cstring>

#define QUIRE_EXPORT extern "C" __attribute__((visibility("default")))

// `rest` has the sign and the top 7 mantissa bits of each float, then the lower halves of 32-bit ones.
QUIRE_EXPORT void quire_split_exponents(const void* floats, uint8_t* exponents, uint8_t* rest, int64_t size,
                                        int32_t itemsize) {
    const auto split = [&](int64_t i, uint16_t upper) {
        exponents[i] = static_cast<uint8_t>(upper >> 7);
        rest[i] = static_cast<uint8_t>((upper >> 8 & 0x80) | (upper & 0x7f));
    };
    if (itemsize == 2) {
        const auto* words = static_cast<const uint16_t*>(floats);
        for (int64_t i = 0; i < size; ++i) split(i, words[i]);
        return;
    }
    const auto* words = static_cast<const uint32_t*>(floats);
    for (int64_t i = 0; i < size; ++i) split(i, static_cast<uint16_t>(words[i] >> 16));
    for (int64_t i = 0; i < size; ++i) {
        const auto lower = static_cast<uint16_t>(words[i]);
        std::memcpy(rest + size + 2 * i, &lower, 2);
    }
}

QUIRE_EXPORT void quire_join_exponents(void* floats, const uint8_t* exponents, const uint8_t* rest, int64_t size,
                                       int32_t itemsize) {
    const auto join = [&](int64_t i) {
        const uint32_t other = rest[i];
        return static_cast<uint16_t>((other & 0x80) << 8 | static_cast<uint32_t>(exponents[i]) << 7 | (other & 0x7f));
    };
    if (itemsize == 2) {
        auto* words = static_cast<uint16_t*>(floats);
        for (int64_t i = 0; i < size; ++i) words[i] = join(i);
        return;
    }
    auto* words = static_cast<uint32_t*>(floats);
    for (int64_t i = 0; i < size; ++i) {
        uint16_t lower;
        std::memcpy(&lower, rest + size + 2 * i, 2);
        words[i] = static_cast<uint32_t>(join(i)) << 16 | lower;
    }
}
