// AMX's tile registers, with workarounds for compilers.
#pragma once

#if defined(__AMX_TILE__)
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace {

// Completes stores before tile loads. g++ before 12.4 and 13.3 assumes that a tile configuration has 8 of its 64 bytes,
// and that tile loads do not read memory.
inline void finish_stores() { asm volatile("" ::: "memory"); }

// Configures all eight registers as tiles of 64 bytes by 16 rows, or the first six by fewer, for this thread and object's
// lifetime. The process needs the system's permission, which `quire_cpu_runs` requests.
class Tiles {
  public:
    explicit Tiles(int rows = 16) {
        struct alignas(64) {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } configuration;
        std::memset(configuration.rows, rows, 6);
        asm volatile("" : : "r"(&configuration) : "memory");
        _tile_loadconfig(&configuration);
    }
    ~Tiles() { _tile_release(); }
    Tiles(const Tiles&) = delete;
};

}  // namespace
#endif
