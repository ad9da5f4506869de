// Sums and gathering among ranks on one machine. A layer of a small model takes some 100 microseconds and waits for other
// ranks twice, so a rank polls their lines for a while before it yields its core.
#include "collective.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "vectors.h"

namespace {

constexpr int64_t kLine = 64;
constexpr int kLooks = 1000;        // polls before yielding, some 40 microseconds
constexpr int64_t kAwakeUs = 2000;  // yields before sleeping

uint64_t* count_of(const QuireCollective* call, int rank) {
    return reinterpret_cast<uint64_t*>(call->memory + kLine * rank);
}

char* buffer_of(const QuireCollective* call, int rank) {
    return call->memory + kLine * call->size + (2 * rank + call->num_parts % 2) * call->part_bytes;
}

int64_t now_us() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool all_have_come(const QuireCollective* call) {
    for (int rank = 0; rank < call->size; ++rank)
        if (__atomic_load_n(count_of(call, rank), __ATOMIC_ACQUIRE) < call->num_parts) return false;
    return true;
}

bool wait_for_all(const QuireCollective* call) {
    for (int i = 0; i < kLooks; ++i) {
        if (all_have_come(call)) return true;
        pause();
    }
    const int64_t began = now_us();
    while (!all_have_come(call)) {
        const int64_t waited = now_us() - began;
        if (waited > call->wait_us) return false;
        if (waited < kAwakeUs) {
            sched_yield();
        } else {
            const timespec nap = {0, 50000};
            nanosleep(&nap, nullptr);
        }
    }
    return true;
}

// Writes a part to this rank's buffer, unless done, and waits for all ranks' parts.
bool meet(QuireCollective* call, const char* part, int64_t num_bytes) {
    if (!call->is_put) {
        ++call->num_parts;
        std::memcpy(buffer_of(call, call->rank), part, num_bytes);
        __atomic_store_n(count_of(call, call->rank), call->num_parts, __ATOMIC_RELEASE);
        call->is_put = 1;
    }
    if (!wait_for_all(call)) return false;
    call->is_put = 0;
    return true;
}

template <class T>
void add_up(const QuireCollective* call, T* x, int64_t count) {
    int64_t at = 0;
    for (; at + W <= count; at += W) {
        Floats sum = load_floats(reinterpret_cast<const T*>(buffer_of(call, 0)) + at);
        for (int rank = 1; rank < call->size; ++rank)
            sum += load_floats(reinterpret_cast<const T*>(buffer_of(call, rank)) + at);
        store_floats(x + at, sum);
    }
    for (; at < count; ++at) {
        float sum = to_float(reinterpret_cast<const T*>(buffer_of(call, 0))[at]);
        for (int rank = 1; rank < call->size; ++rank)
            sum += to_float(reinterpret_cast<const T*>(buffer_of(call, rank))[at]);
        from_float(x + at, sum);
    }
}

template <class T>
int32_t all_reduce(QuireCollective* call, void* x_, int64_t num_elements) {
    T* x = static_cast<T*>(x_);
    while (call->done < num_elements) {
        const int64_t count = std::min(num_elements - call->done, call->part_bytes / int64_t(sizeof(T)));
        if (!meet(call, reinterpret_cast<const char*>(x + call->done), count * sizeof(T))) return 0;
        add_up(call, x + call->done, count);
        call->done += count;
    }
    call->done = 0;
    return 1;
}

}  // namespace

extern "C" {

int32_t quire_all_reduce_float32(QuireCollective* call, void* x, int64_t num_elements) {
    return all_reduce<float>(call, x, num_elements);
}

int32_t quire_all_reduce_bfloat16(QuireCollective* call, void* x, int64_t num_elements) {
    return all_reduce<BFloat16>(call, x, num_elements);
}

int32_t quire_all_gather(QuireCollective* call, const void* x_, void* out_, int64_t num_rows, int64_t row_bytes) {
    const char* x = static_cast<const char*>(x_);
    char* out = static_cast<char*>(out_);
    while (call->done < num_rows * row_bytes) {
        const int64_t num_bytes = std::min(num_rows * row_bytes - call->done, call->part_bytes);
        if (!meet(call, x + call->done, num_bytes)) return 0;
        for (int rank = 0; rank < call->size; ++rank) {
            const char* part = buffer_of(call, rank);
            for (int64_t at = 0; at < num_bytes;) {  // pieces of whole or partial rows, within one row
                const int64_t row = (call->done + at) / row_bytes, column = (call->done + at) % row_bytes;
                const int64_t piece = std::min(num_bytes - at, row_bytes - column);
                std::memcpy(out + (row * call->size + rank) * row_bytes + column, part + at, piece);
                at += piece;
            }
        }
        call->done += num_bytes;
    }
    call->done = 0;
    return 1;
}
}
