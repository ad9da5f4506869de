// Memory that a thread keeps between calls, since fresh pages cost more than the writes to them.
#pragma once

#include <cstdlib>

#include "sizes.h"

namespace {

class Kept {
  public:
    Kept() = default;
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    ~Kept() { std::free(memory_); }

    // Returns memory for `count` objects, aligned to cache lines. Growing loses the content.
    template <class T>
    T* of(int64_t count) {
        const int64_t bytes = round_up(count * int64_t(sizeof(T)), 4096);
        if (bytes > bytes_) {
            std::free(memory_);
            memory_ = std::aligned_alloc(64, size_t(bytes));
            if (!memory_) std::abort();
            bytes_ = bytes;
        }
        return static_cast<T*>(memory_);
    }

  private:
    void* memory_ = nullptr;
    int64_t bytes_ = 0;
};

}  // namespace
