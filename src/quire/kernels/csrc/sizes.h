// Integer division and rounding.
#pragma once

#include <cstdint>

namespace {

constexpr int64_t divide_up(int64_t x, int64_t by) { return (x + by - 1) / by; }
constexpr int64_t round_up(int64_t x, int64_t to) { return divide_up(x, to) * to; }

}  // namespace
